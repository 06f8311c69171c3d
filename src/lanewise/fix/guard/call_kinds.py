"""When a patched call may take the fast path: exactly the kinds of calls that were proven, everything else goes to the
original. The kind of a call is what decides which kernels run and what they may assume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.process_state import devices_set
from lanewise.fix.telling import Unlike, told
from lanewise.fix.tensors import Call, Made, flatten
from lanewise.fix.typed_torch import torch

__all__ = ["ALIGNED", "PARTS", "call_key", "call_kind", "why_not"]

_C: Any = torch_part("torch._C")
_pytree: Any = torch_part("torch.utils._pytree")
_Tensor: Any = torch.Tensor
_grad_on, _inference_on, _autocast_on = (
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    getattr(_C, "_is_any_autocast_enabled", lambda: True),
)
_default_type, _deterministic = torch.get_default_dtype, torch.are_deterministic_algorithms_enabled

PARTS = (
    "arguments",
    "dtype",
    "device",
    "shape",
    "strides",
    "requires_grad",
    "memory",
    "grad mode",
    "autocast",
    "training mode",
    "settings",
)
"""The parts of a kind, in its order: the name under which a fallback is counted."""

ALIGNED = 15
"""Kernels read up to 16 bytes at once where memory begins at a multiple of that."""


def call_key(args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> tuple[Any, ...]:
    """What stands for the kind of a call, quickly found out: calls with equal keys are of the same kind."""
    if kwargs or _autocast_on():
        return call_kind((args, kwargs), training)
    if len(args) == 1 and type(args[0]) is _Tensor:  # most calls
        (arg,) = args
        try:
            return (
                training,
                _grad_on(),
                _inference_on(),
                _settings(),
                arg.dtype,
                arg.device,
                arg.shape,
                arg.requires_grad,
                arg.stride(),
                not arg.data_ptr() & ALIGNED,
            )
        except (RuntimeError, NotImplementedError):  # sparse, or without memory
            return call_kind((args, kwargs), training)
    key: list[Any] = [training, _grad_on(), _inference_on(), _settings()]
    tensors = 0
    for arg in args:
        kind = type(arg)
        if kind is _Tensor:
            tensors += 1
            key += arg.dtype, arg.device, arg.shape, arg.requires_grad
            try:
                key += arg.stride(), not arg.data_ptr() & ALIGNED
            except (RuntimeError, NotImplementedError):
                return call_kind((args, kwargs), training)
        elif kind is str or arg is None:
            key.append(arg)
        elif kind is bool or kind is int:
            key += kind, arg
        else:
            return call_kind((args, kwargs), training)
    if tensors > 1 and len({id(arg) for arg in args if type(arg) is _Tensor}) < tensors:
        return call_kind((args, kwargs), training)
    return tuple(key)


def call_kind(call: Call, training: bool) -> tuple[Any, ...]:
    """The kind of a call, hashable; parts as in `PARTS`.

    A tensor subclass (DTensor, a quantised weight, a fake tensor) is a kind of its own: its class stands among the
    arguments. Numbers count by type, value and sign, an object by its class and all that it holds; what cannot be told
    from others is never of a proven kind.
    """
    args, kwargs = call
    tensors: list[Any] = []
    shape_of_call: list[Any] = []
    for leaf in flatten((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
            shape_of_call.append(type(leaf))
        else:
            shape_of_call.append(leaf if type(leaf) is Made else _hashable(told(leaf)))
    # What lies in which container, and under which names, in their order.
    shape_of_call.append(str(_pytree.tree_flatten((args, kwargs))[1]))
    places = {id(tensor): at for at, tensor in reversed(list(enumerate(tensors)))}
    return (
        tuple(shape_of_call),
        tuple([tensor.dtype for tensor in tensors]),
        tuple([tensor.device for tensor in tensors]),
        tuple([tensor.shape for tensor in tensors]),
        tuple([tensor.stride() if tensor.layout is torch.strided else () for tensor in tensors]),
        tuple([tensor.requires_grad for tensor in tensors]),
        # Where it lies: aligned, and which are the same tensor.
        tuple([(_aligned(tensor), places[id(tensor)]) for tensor in tensors]),
        (_grad_on(), _inference_on()),
        _autocast(tensors),
        training,
        _settings(),
    )


def why_not(kind: tuple[Any, ...], proven: Sequence[tuple[Any, ...]]) -> str:
    """Name of the first part in which a kind differs from the proven one that it is most like."""
    if not proven:
        return PARTS[0]
    nearest = max(proven, key=lambda other: sum(a == b for a, b in zip(kind, other, strict=True)))
    return next((name for name, a, b in zip(PARTS, kind, nearest, strict=True) if a != b), PARTS[0])


def _aligned(tensor: Any) -> bool:
    try:
        return not tensor.data_ptr() & ALIGNED
    except (RuntimeError, NotImplementedError):  # it has no memory of its own
        return True


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return Unlike()
    return value


def _autocast(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Where it is on, and its type: on every kind of device, as arguments on the host may be meant for a card."""
    if not _autocast_on():
        return ()
    devices = sorted({"cpu", "cuda", *(tensor.device.type for tensor in tensors)})
    return tuple([(one, torch.get_autocast_dtype(one)) for one in devices if torch.is_autocast_enabled(one)])


def _settings() -> tuple[Any, ...]:
    """Of the process, as far as they decide what a program that makes tensors of its own computes."""
    return (_default_type(), _deterministic(), *devices_set())
