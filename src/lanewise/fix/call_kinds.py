"""When a patched call may take the fast path: exactly the kinds of calls that were proven, everything else goes to the
original. The kind of a call is what decides which kernels run and what they may assume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.tensors import Call, Made, flatten

__all__ = ["PARTS", "call_kind", "why_not"]

torch: Any = torch_part()

PARTS = ("arguments", "dtype", "device", "shape", "strides", "requires_grad", "grad mode", "autocast", "training mode")
"""The parts of a kind, in its order: the name under which a fallback is counted."""

_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, Made)


def call_kind(call: Call, training: bool) -> tuple[Any, ...]:
    """The kind of a call, hashable; parts as in `PARTS`.

    A tensor subclass (DTensor, a quantised weight, a fake tensor) is a kind of its own: its class stands among the
    arguments. A value that is neither a tensor nor plain counts by its class; an object that holds tensors by its class
    and by what it holds.
    """
    args, kwargs = call
    tensors: list[Any] = []
    shape_of_call: list[Any] = []
    leaves = args if not kwargs and all(type(arg) is torch.Tensor for arg in args) else flatten((args, kwargs))
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
            shape_of_call.append(type(leaf))
        else:
            shape_of_call.append(leaf if type(leaf) in _PLAIN else type(leaf))
    if kwargs:
        shape_of_call.append(tuple(kwargs))
    return (
        tuple(shape_of_call),
        tuple([tensor.dtype for tensor in tensors]),
        tuple([tensor.device for tensor in tensors]),
        tuple([tensor.shape for tensor in tensors]),
        tuple([tensor.stride() if tensor.layout is torch.strided else () for tensor in tensors]),
        tuple([tensor.requires_grad for tensor in tensors]),
        (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        _autocast(tensors),
        training,
    )


def why_not(kind: tuple[Any, ...], proven: Sequence[tuple[Any, ...]]) -> str:
    """Name of the first part in which a kind differs from the proven one that it is most like."""
    if not proven:
        return PARTS[0]
    nearest = max(proven, key=lambda other: sum(a == b for a, b in zip(kind, other, strict=True)))
    return next(name for name, a, b in zip(PARTS, kind, nearest, strict=True) if a != b)


def _autocast(tensors: Sequence[Any]) -> tuple[Any, ...]:
    device = tensors[0].device.type if tensors else "cpu"
    if not torch.is_autocast_enabled(device):
        return ()
    return (device, torch.get_autocast_dtype(device))
