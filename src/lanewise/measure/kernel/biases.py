"""Biases that an operator of its own adds right after the matrix product that could have added them."""

from __future__ import annotations

import numpy as np

from lanewise.measure.core import Core

__all__ = ["biases_apart"]

_ADDITIONS = ("aten::add", "aten::add_")
# Where torch takes a linear layer apart itself, as for an input that is not contiguous, the program has no bias to move.
_LINEAR = ("aten::linear", "aten::addmm")


def biases_apart(facts: Core) -> np.ndarray:
    """Rows of `Trace.device_work` in steady steps: additions of one row to all rows of a product, which is what ran before
    them on their stream. Shapes must show it."""
    trace, operator = facts.trace, facts.trace.links.operator
    event = trace.device_work
    rows = np.flatnonzero(facts.in_steady_step[event])
    rows = rows[np.lexsort((trace.start[event[rows]], trace.lane[event[rows]]))]
    product, addition = operator[rows[:-1]], operator[rows[1:]]
    fits = (trace.lane[event[rows[:-1]]] == trace.lane[event[rows[1:]]]) & (product >= 0) & (addition >= 0)
    fits &= np.isin(trace.name[np.maximum(product, 0)], trace.name_ids("aten::mm"))
    fits &= np.isin(trace.name[np.maximum(addition, 0)], trace.name_ids(*_ADDITIONS))
    around = facts.host.outermost_operator[np.maximum(addition, 0)]
    fits &= ~np.isin(trace.name[np.maximum(around, 0)], trace.name_ids(*_LINEAR))
    at = np.flatnonzero(fits)
    return rows[1:][[one for one in at.tolist() if _is_its_bias(facts, int(product[one]), int(addition[one]))]]


def _is_its_bias(facts: Core, product: int, addition: int) -> bool:
    made, added = facts.signatures.of(product), facts.signatures.of(addition)
    if made is None or added is None:
        return False
    left, right, whole, bias = made.tensor(0), made.tensor(1), added.tensor(0), added.tensor(1)
    if left is None or right is None or whole is None or bias is None or len(right.shape) != 2:
        return False
    columns = right.shape[1]
    return (
        bias.shape == (columns,)
        and whole.shape[-1:] == (columns,)
        and whole.numel == left.numel // max(1, left.shape[-1]) * columns
        and bias.dtype == whole.dtype == left.dtype
    )
