"""Copies that operators make inside the device: shared by MEM103, MEM104 and MEM106."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.select import climb, device_rows, device_sum, host_cost
from lanewise.measure.core import remembered
from lanewise.measure.facts import Facts
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

__all__ = ["Copies", "cost_of", "device_copies", "host_of_each", "parent_name", "share_of_time"]

# Operators that only lead to a copy: the one above them is who wants it.
_THROUGH = (
    "aten::copy_",
    "aten::clone",
    "aten::contiguous",
    "aten::_to_copy",
    "aten::to",
    "aten::reshape",
    "aten::type_as",
    "aten::float",
    "aten::half",
    "aten::bfloat16",
)


class Copies(NamedTuple):
    """Leaf operators that copy on the device, in steady steps.

    Attributes:
        leaf: rows of `Facts.leaves`. operator: the copying operator (`aten::copy_`). root: the outermost operator that
            exists only for this copy. above: the operator or annotation around that, or -1.
    """

    leaf: np.ndarray
    operator: np.ndarray
    root: np.ndarray
    above: np.ndarray

    def of(self, chosen: np.ndarray) -> Copies:
        """Those chosen by a mask."""
        return Copies(*(column[chosen] for column in self))


@remembered
def device_copies(facts: Facts) -> Copies:
    """All copies whose source and destination are on the device."""
    trace, leaves = facts.trace, facts.leaves
    leaf = np.flatnonzero(np.isin(trace.name[leaves.operator], trace.name_ids("aten::copy_")))
    # A copy from or to the host is a `Memcpy` with such a direction; everything else stays on the device.
    rows = leaves.row[np.minimum(leaves.first[leaf], len(leaves.row) - 1)] if len(leaf) else leaf
    args = trace["copy_args"]
    at = trace.lookup("copy_args", trace.device_work[rows])
    inside = np.ones(len(leaf), dtype=bool)
    inside[at >= 0] = args["direction"][at[at >= 0]] == "DtoD"
    leaf = leaf[inside]
    operator = leaves.operator[leaf]
    through = mask_of(len(trace.names), trace.name_ids(*_THROUGH))
    root = climb(facts, operator, through)
    return Copies(leaf, operator, root, facts.host.parent[root])


def parent_name(facts: Facts, operator: np.ndarray) -> np.ndarray:
    """Names of the operators directly above, as an object array; "" at the top."""
    above = facts.host.parent[operator]
    result = np.empty(len(operator), dtype=object)
    result[:] = [facts.trace.name_of(int(event)) if event >= 0 else "" for event in above]
    return result


def cost_of(facts: Facts, copies: Copies) -> tuple[float, float]:
    """The cost on the device and on the host, ns per step."""
    rows = facts.leaves.rows(copies.leaf)
    device_ns = device_sum(facts, rows)
    host_ns = min(
        host_cost(facts, facts.trace.links.launch[rows]),
        float(facts.trace.duration[np.unique(copies.root)].sum()) / facts.steady_count,
    )
    return device_ns, host_ns


def host_of_each(facts: Facts, copies: Copies, host_ns: float) -> np.ndarray:
    """What each copy has of the host's cost of all, ns per step: in proportion to the operators that make them."""
    length = facts.trace.duration[copies.root].astype(np.float64)
    return host_ns * length / max(1.0, float(length.sum()))


def share_of_time(facts: Facts, device_ns: float, host_ns: float) -> tuple[float, float]:
    """Shares of the kernels' time, communication left out, and of the host time of all launching operators."""
    kernels = device_rows(facts, Kind.KERNEL)
    own = kernels[~facts.is_family("communication")[kernels]]
    host = host_cost(facts, facts.steady_events(facts.launches.call))
    return device_ns / max(1.0, device_sum(facts, own)), host_ns / max(1.0, host)
