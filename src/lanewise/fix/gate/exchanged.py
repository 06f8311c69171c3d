"""Other values in everything that a program holds, and back: what was copied out of it, or folded into it, shows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from lanewise.fix.subject import Subject
from lanewise.fix.tensors import drawing, tensors_of
from lanewise.fix.time_budget import uninterrupted
from lanewise.fix.torch_types import Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["exchanged_values", "shaken_parameters"]


_SMALL = 1 << 16
"""Elements up to which a tensor is copied; a larger one is turned around, which needs no memory and can be undone."""


@contextmanager
def exchanged_values(subject: Subject) -> Generator[None]:
    """Parameters, buffers and tensors among attributes have other values inside, in the same memory: their own in another
    order, or, if that is no other, a little more. Values that are not ordered (a mask, a table of positions) stay valid in
    any order."""
    turned: list[tuple[Any, int]] = []
    copied: list[tuple[Any, Any]] = []
    try:
        with uninterrupted(), torch.no_grad():
            every = [*subject.parameters(), *subject.buffers(), *_among_attributes(subject)]
            for tensor in {id(one): one for one in every}.values():
                if tensor.layout is torch.strided and tensor.numel():
                    _exchange(tensor, turned, copied)
        yield
    finally:
        with uninterrupted(), torch.no_grad():
            for tensor, at in turned:
                tensor.data.copy_(tensor.data.flip(at))
            for tensor, value in copied:
                tensor.data.copy_(value)


@contextmanager
def shaken_parameters(subject: Subject) -> Generator[None]:
    """Small parameters, such as biases and the weights of norms, are off by about one unit of roundoff inside."""
    small = [one for one in subject.parameters() if one.dtype.is_floating_point and 0 < one.numel() <= _SMALL]
    copied: list[tuple[Any, Any]] = []
    try:
        with uninterrupted(), torch.no_grad():
            for at, tensor in enumerate(small):
                copied.append((tensor, tensor.detach().clone()))
                generator = drawing(tensor.device, at)
                noise = torch.randn(tuple(tensor.shape), generator=generator, device=generator.device)
                noise = noise.to(tensor.device, tensor.dtype)
                tensor.data.mul_(1 + noise * torch.finfo(tensor.dtype).eps)
        yield
    finally:
        with uninterrupted(), torch.no_grad():
            for tensor, value in copied:
                tensor.data.copy_(value)


def _among_attributes(subject: Subject) -> list[Tensor]:
    """Tensors that modules hold beside parameters and buffers, by themselves or in containers."""
    held = [
        value
        for module in subject.every_module()
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, torch.Tensor | list | tuple | dict)
    ]
    return tensors_of(held)


def _exchange(tensor: Tensor, turned: list[tuple[Any, int]], copied: list[tuple[Any, Any]]) -> None:
    data = tensor.data
    at = next((at for at, size in enumerate(data.shape) if size > 1), None)
    if at is not None and data.numel() > _SMALL:
        turned.append((tensor, at))
        data.copy_(data.flip(at))
        return
    copied.append((tensor, data.clone()))
    other = data.flip(at) if at is not None else data
    if bool((other == data).all()) and data.dtype.is_floating_point:
        steps = torch.arange(1, data.numel() + 1, dtype=torch.float64, device=data.device).view(data.shape)
        other = (data.double() * (1 + 0.5 * steps / data.numel())).to(data.dtype)
        if bool((other == data).all()):  # zeros, as the means of a norm that nothing has passed through
            other = (data.double() + 0.5 * steps / data.numel()).to(data.dtype)
    if data.numel() == 1 and not data.dtype.is_floating_point and data.dtype is not torch.bool:
        other = data + 1  # a counter
    data.copy_(other)
