"""Ops and changes in a few words. Parts of these texts come from a trace: outputs escape them."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.compare.matching.kernels import identity
from lanewise.compare.model import Change, OpSide
from lanewise.measure.kernel_names import short_name

__all__ = ["chain_words", "change_label", "op_words", "plural"]

_NAMED_BY_KERNEL = frozenset({"gemm", "convolution", "attention", "communication", "triton", "gemm helper"})
_MAX_NAMES = 4


def op_words(op: OpSide, limit: int = 48) -> str:
    """What an op is called: the kernel where its name tells (products, generated kernels), else its operator."""
    if op.kind == "operator":
        return op.name.removeprefix("aten::")[:limit]
    if op.kind != "kernel":
        return op.name.split(" (", 1)[0].strip()
    named = identity(op.name).family in _NAMED_BY_KERNEL or not op.operator.startswith("aten::")
    return short_name(op.name, limit) if named else op.operator.removeprefix("aten::")


def chain_words(ops: Sequence[OpSide], limit: int = _MAX_NAMES) -> str:
    """Several ops, joined; repeated neighbours once with their number."""
    words: list[list[object]] = []
    for op in ops:
        word = op_words(op)
        if words and words[-1][0] == word:
            words[-1][1] = int(str(words[-1][1])) + 1
        else:
            words.append([word, 1])
    shown = [str(word) if count == 1 else f"{count}x {word}" for word, count in words[:limit]]
    more = len(words) - len(shown)
    return " + ".join(shown) + (f" + {more} more" if more else "")


def change_label(change: Change, kinds: tuple[str, ...] | None = None) -> str:
    """A change in one line, without the word for how; `kinds` keeps only ops of these kinds."""
    a = [op for op in change.a if kinds is None or op.kind in kinds]
    b = [op for op in change.b if kinds is None or op.kind in kinds]
    times = f" ({change.times}x)" if change.times > 1 else ""
    left, right = chain_words(a), chain_words(b)
    return f"{right or left}{times}" if left == right or not (a and b) else f"{left} → {right}{times}"


def plural(count: float, noun: str) -> str:
    """`1 kernel`, `3 kernels`."""
    text = f"{int(count):,}" if float(count).is_integer() else f"{count:,.1f}"
    return f"{text} {noun}" if count == 1 else f"{text} {noun[:-1]}ies" if noun.endswith("y") else f"{text} {noun}s"
