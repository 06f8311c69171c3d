"""Channels-last memory for convolutions: the layout that their libraries work in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.candidates.predictions import conv_channels_last
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors
from lanewise.fix.torch_types import Module, Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["candidates"]


def candidates(subject: Subject) -> list[Candidate]:
    """For modules with two-dimensional convolutions and an input of four dimensions."""
    convolutions = [module for module in subject.every_module() if isinstance(module, torch.nn.Conv2d)]
    if subject.root is None or not convolutions:
        return []
    return [
        Candidate(
            "channels-last",
            "layout",
            "whole",
            "weights and images with their channels innermost, as convolution libraries read them",
            _build,
            predictions=(conv_channels_last(),),
            answers=("KER107", "MEM104"),
        )
    ]


class _Weights:
    """Convolution weights in channels-last; taken off, each lies where it lay. Values are carried over, both ways.

    Both memories are kept: what relies on addresses (a captured graph) finds them again.
    """

    def __init__(self, root: Module) -> None:
        self._weights: list[Any] = [module.weight for module in root.modules() if isinstance(module, torch.nn.Conv2d)]
        self._own: list[Any] = []
        self._converted: list[Any] = []
        self._on = False

    def enable(self) -> None:
        if self._on:
            return
        if not self._own or any(_form(weight) != _form(one) for weight, one in self._pairs(self._own)):
            self._converted = [w.data.clone(memory_format=torch.channels_last) for w in self._weights]
        self._own = [weight.data for weight in self._weights]
        self._on = True
        for weight, converted in self._pairs(self._converted):
            weight.data = converted.copy_(weight.data)

    def disable(self) -> None:
        if not self._on:
            return
        for weight, own in self._pairs(self._own):
            if _form(weight) != _form(own):  # somebody has given it another type or device since: that stays
                weight.data = weight.data.contiguous()
            elif weight.data_ptr() != own.data_ptr():
                weight.data = own.copy_(weight.data)
        self._on = False

    def _pairs(self, others: list[Any]) -> Any:
        return zip(self._weights, others, strict=True)


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _build(subject: Subject) -> Several:
    return Several([_Weights(subject.root), ForwardPatch(subject.entry, _converted)])


def _converted(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = map_tensors(_inwards, (args, kwargs))
        return map_tensors(_outwards, original(*args, **kwargs))

    return forward


def _inwards(tensor: Tensor) -> Any:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _outwards(tensor: Tensor) -> Any:
    # What uses the result may rely on its layout.
    return tensor.contiguous() if tensor.dim() == 4 else tensor
