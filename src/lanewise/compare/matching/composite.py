"""One operator, written out on one side and a single kernel on the other: attention, norms, losses.

Two kinds of evidence. The same composite operator (`scaled_dot_product_attention`, `rms_norm` ...) stands around the many
ops and around the one kernel: certain. Or the one is an attention kernel and the many, between the same neighbours, hold
two products and a softmax: attention written by hand, matched by its structure.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lanewise.compare.matching.fusion import Fused
from lanewise.compare.matching.kernels import identity
from lanewise.compare.sides.step_work import Op, Work

__all__ = ["find_composites"]

# Operators that PyTorch implements either by one kernel or by many.
_COMPOSITE = frozenset(
    f"aten::{name}"
    for name in (
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
        "rms_norm",
        "layer_norm",
        "group_norm",
        "batch_norm",
        "cross_entropy_loss",
        "softmax",
        "log_softmax",
        "gelu",
        "einsum",
    )
)
_PRODUCTS_OF_ATTENTION = 2


def find_composites(
    many: Work, one: Work, pairs: list[tuple[int, int]], free_many: np.ndarray, free_one: np.ndarray
) -> list[Fused]:
    """Find kernels of `one` that do what several ops of `many` do; arguments as in `fusion.find_fused`."""
    fences_many, fences_one = np.array([(-1, -1), *pairs]).T
    gap_of = {
        side: np.searchsorted(fences, np.arange(len(work.at)), side="right")
        for side, fences, work in (("many", fences_many, many), ("one", fences_one, one))
    }
    waiting: dict[int, list[int]] = {}
    for i in np.flatnonzero(free_many).tolist():
        waiting.setdefault(int(gap_of["many"][i]), []).append(i)
    found: list[Fused] = []
    for j in np.flatnonzero(free_one).tolist():
        op = one.ops[one.at[j]]
        near = waiting.get(int(gap_of["one"][j]), [])
        if op.kind != "kernel" or not near:
            continue
        names = _COMPOSITE.intersection(op.operators)
        taken = [i for i in near if names.intersection(many.ops[many.at[i]].operators)]
        sure = bool(taken)
        if not taken and identity(op.name).family == "attention" and _is_attention(many.ops[many.at[i]] for i in near):
            taken = near
        if taken:
            found.append(Fused(j, tuple(taken), sure))
            waiting[int(gap_of["one"][j])] = [i for i in near if i not in set(taken)]
    return found


def _is_attention(ops: Iterable[Op]) -> bool:
    """Two products with a softmax between them."""
    kinds = [_part(op) for op in ops]
    if "softmax" not in kinds:
        return False
    at = kinds.index("softmax")
    return "product" in kinds[:at] and "product" in kinds[at:] and kinds.count("product") >= _PRODUCTS_OF_ATTENTION


def _part(op: Op) -> str:
    family = identity(op.name).family if op.kind == "kernel" else ""
    if family == "gemm":
        return "product"
    return "softmax" if family == "softmax" or any("softmax" in name for name in op.operators[:2]) else ""
