"""Whether the rounds of a loop need each other, from the shapes of their operands.

What is done to one piece after another can be done to all at once; the layers of a model and the steps of a recurrence
cannot. A round that needs the one before takes something that a round makes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lanewise.measure.kernel.flops import work_of
from lanewise.measure.signatures import Signature

__all__ = ["PICKS", "Shape", "are_independent", "piece_of"]

Shape = tuple[int, ...]

PICKS: tuple[str, ...] = ("aten::select", "aten::slice")
"""Operators that take a piece out of a tensor."""

_PRODUCTS = {"aten::matmul": 0, "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_SAME_SHAPE = frozenset(
    {
        "aten::dropout",
        "aten::softmax",
        "aten::log_softmax",
        "aten::layer_norm",
        "aten::rms_norm",
        "aten::to",
        "aten::clone",
    }
)


def are_independent(round_: Iterable[tuple[str, Signature | None]], piece: Shape | None) -> bool:
    """Whether each operator of a round works on what the one before it made, the first on the round's piece, and whatever
    else they take cannot come from another round: nothing in a round has its shape.

    Args:
        round_: the operators of one round, in order: names and arguments.
        piece: shape of the piece where it was taken before the loop; None where the round takes it itself.
    """
    now, made, others = piece, set[Shape](), list[Shape]()
    for name, call in round_:
        if call is None:
            return False
        operands = [tensor.shape for tensor in call.tensors]
        if name == "aten::linear" or name in _PRODUCTS or name in _SAME_SHAPE or _is_pointwise(name, call):
            if now not in operands:
                return False
            operands.remove(now)
            now = _result(name, call)
        elif operands and operands[0] == now:
            operands, now = operands[1:], piece_of(name, call)
        elif name in PICKS and now is None:
            now = piece_of(name, call)
            others += operands
            continue
        elif piece_of(name, call) is None:
            return False
        else:  # a view of something that is the same in all rounds
            others += operands
            continue
        if now is None:
            return False
        made.add(now)
        others += operands
    return now is not None and not made.intersection(others)


def piece_of(name: str, call: Signature) -> Shape | None:
    """Shape of what a view shows, or of each piece that a tensor is taken apart into; None where that is not known."""
    tensor = call.tensor(0)
    if tensor is None:
        return None
    shape, rank = list(tensor.shape), len(tensor.shape)
    if name in ("aten::t", "aten::numpy_T"):
        return tuple(reversed(shape))
    if name in ("aten::view", "aten::reshape", "aten::_unsafe_view"):
        wanted = call.whole_list(1)
        if wanted is None or wanted.count(-1) > 1:
            return None
        known = int(np.prod([size for size in wanted if size >= 0]))
        return tuple(tensor.numel // max(1, known) if size == -1 else size for size in wanted)
    if name == "aten::split":
        size, dim = call.whole(1, 0), call.whole(2, 0)
        return tuple(min(size, n) if at == dim % rank else n for at, n in enumerate(shape)) if rank and size else None
    dim = call.whole(1, 0)
    if not -rank <= dim < rank + (name == "aten::unsqueeze"):
        return None
    if name == "aten::unsqueeze":
        dim += (rank + 1) * (dim < 0)
        return (*shape[:dim], 1, *shape[dim:])
    if name in ("aten::select", "aten::unbind") or (name == "aten::squeeze" and shape[dim] == 1):
        del shape[dim]
        return tuple(shape)
    if name == "aten::transpose":
        other = call.whole(2, rank)
        if not -rank <= other < rank:
            return None
        shape[dim], shape[other] = shape[other], shape[dim]
        return tuple(shape)
    return None


def _is_pointwise(name: str, call: Signature) -> bool:
    work = work_of(name, call)
    return work is not None and work.kind == "pointwise"


def _result(name: str, call: Signature) -> Shape | None:
    """Shape of what an operator makes; None where the shapes do not fit together."""
    operands = [tensor.shape for tensor in call.tensors]
    if name in _SAME_SHAPE or name.endswith("_"):
        return operands[0]
    try:
        if name == "aten::linear":
            return (*operands[0][:-1], operands[1][0])
        if name in _PRODUCTS:
            left, right = operands[_PRODUCTS[name] :][:2]
            if len(right) == 1:
                return left[:-1]
            if len(left) == 1:
                return (*right[:-2], right[-1])
            return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
        return np.broadcast_shapes(*operands)
    except (ValueError, IndexError):
        return None
