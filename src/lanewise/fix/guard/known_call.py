"""Whether a call is of one known kind, asked in one pass over its arguments, without making a key of them first.

Most calls are of the kind of the call before. torch compares a tensor with what is known of one (class, type, device,
shape, strides, `requires_grad`) in C++, for its compiler; where a version of torch does not, the key of every call is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import ALIGNED
from lanewise.fix.typed_torch import torch

__all__ = ["known_call"]

_Tensor: Any = torch.Tensor
_grad_on = torch.is_grad_enabled
_autocast_on: Any = getattr(torch_part("torch._C"), "_is_any_autocast_enabled", None)

_PLAIN = (str, bool, int, type(None))

Fits = Callable[[tuple[Any, ...]], bool]


def known_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fits | None:
    """What tells whether later calls, without keyword arguments, are of the kind of this one; False where it cannot tell.

    None for a call that is not made of tensors in memory, strings, whole numbers and None.
    """
    tensors = [one for one in args if type(one) is _Tensor]
    others = [(at, type(one), one) for at, one in enumerate(args) if type(one) is not _Tensor]
    if kwargs or not tensors or any(kind not in _PLAIN for _, kind, _ in others):
        return None
    if _autocast_on is None or _autocast_on() or not _compares():
        return None
    try:
        same = _comparison(tensors)
        aligned = [not one.data_ptr() & ALIGNED for one in tensors]
    except Exception:  # sparse, without memory, or of a kind that torch does not compare
        return None
    count, grad = len(args), _grad_on()
    if not same(*tensors):  # the same tensor twice
        return None

    at_sixteen = aligned[0]

    def one(args: tuple[Any, ...]) -> bool:
        if len(args) != 1:
            return False
        (arg,) = args
        return same(arg) and (not arg.data_ptr() & ALIGNED) is at_sixteen and _grad_on() is grad and not _autocast_on()

    if count == 1:
        return one
    places = [at for at, value in enumerate(args) if type(value) is _Tensor]

    def several(args: tuple[Any, ...]) -> bool:
        if len(args) != count:
            return False
        for at, kind, value in others:
            if type(args[at]) is not kind or args[at] != value:
                return False
        found = [args[at] for at in places] if others else args
        return (
            same(*found)
            and [not one.data_ptr() & ALIGNED for one in found] == aligned
            and _grad_on() is grad
            and not _autocast_on()
        )

    return several


def _comparison(tensors: list[Any]) -> Callable[..., bool]:
    """Of as many tensors with what is known of these, which are not kept."""
    sizes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
    kind = torch_part("torch._C")._dynamo.guards.TensorGuards
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


@cache
def _compares() -> bool:
    """Whether it tells apart all that it has to."""
    known = torch.empty(2, 3)
    others = [
        known.t(), torch.empty(3, 2), torch.empty(2, 3, 1), known.double(), torch.empty(2, 3, requires_grad=True),
        torch.nn.Parameter(known), torch.empty(2, 3, device="meta"), torch.empty_strided((2, 3), (1, 2)), 3, None,
    ]  # fmt: skip
    try:
        one, two = _comparison([known]), _comparison([known, known])
        with torch.inference_mode(torch.is_inference_mode_enabled()):
            again = torch.empty(2, 3)
        return one(known) and one(again) and two(known, again) and not two(known, known) and not any(map(one, others))
    except Exception:
        return False
