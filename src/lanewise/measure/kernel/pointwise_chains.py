"""Runs of pointwise kernels over the same elements: what one fused kernel would do in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.compile.compiled_regions import measure_regions
from lanewise.measure.kernel_names import FAMILIES
from lanewise.measure.signatures import Tensor
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Chains", "pointwise_chains"]

# The second half of a normalisation, which applies statistics element by element; the first half reduces.
_APPLY = r"bn_fw_inf|batch_norm_transform_input|batch_norm_elementwise"
# Conversions and copies written as element-wise kernels; concatenation and fills are not.
_COPY = r"elementwise_kernel.*copy|(?:bfloat16|float16|half|float)_copy_kernel"

# Elements per thread: `vectorized_elementwise_kernel<8, ...>`, or after the threads: `elementwise_kernel<128, 4, ...>`.
_PER_THREAD = re.compile(r"vectorized_elementwise_kernel<(\d+)|elementwise_kernel<\d+, ?(\d+)")


@dataclass(frozen=True, eq=False)
class Chains:
    """Maximal runs of two or more pointwise kernels over equally many elements, in steady steps.

    Attributes:
        row: rows of `Trace.device_work`, in stream order, chain by chain, shape (kernels,).
        chain: chain of each, 0, 1, ..., shape (kernels,).
        elements: elements of each chain; estimated from the grid where `measured` is false, shape (chains,).
        item_bytes: bytes per element, 0 if unknown, shape (chains,).
        touched: bytes that the member with the most operands reads and writes, 0 if unknown, shape (chains,).
        measured: whether shapes give the elements of every kernel of the chain, bool, shape (chains,).
        across: whether the chain reaches across an independent matrix product, bool, shape (chains,).
    """

    row: np.ndarray
    chain: np.ndarray
    elements: np.ndarray
    item_bytes: np.ndarray
    touched: np.ndarray
    measured: np.ndarray
    across: np.ndarray

    def __len__(self) -> int:
        return len(self.elements)


def pointwise_chains(facts: Core) -> Chains:
    """Find the chains.

    Two kernels are in one chain if they follow each other on one stream in one step, outside compiled regions and
    replayed graphs, and run over the same number of elements. With shapes a single matrix product between them is
    stepped over if none of its inputs has that many elements, so that it cannot depend on the chain. A reduction belongs
    to the chain if shapes show that it reads those elements and that the next kernel takes its result back to all of
    them, as a softmax written out does: one pass over the rows does both.
    """
    trace, links = facts.trace, facts.trace.links
    work = trace.device_work
    rows = np.flatnonzero(facts.in_steady_step[work])
    rows = rows[np.lexsort((trace.start[work[rows]], trace.lane[work[rows]]))]
    event = work[rows]
    eligible = _pointwise(facts)[trace.name[event]] & (trace.kind[event] == Kind.KERNEL)
    ours = (links.operator[rows] >= 0) & ~links.graph_nodes[rows] & ~_compiled(facts, links.launch[rows])
    eligible &= ours
    eligible |= _spread_again(facts, rows, facts.is_family("reduction")[rows] & ours, eligible)
    at = np.flatnonzero(eligible)
    if len(at) < 2:
        nothing, none = np.empty(0, np.int64), np.empty(0, bool)
        return Chains(nothing, nothing, nothing, nothing, nothing, none, none)

    elements, item_bytes, touched, measured = _elements(facts, rows[at])
    before, after = at[:-1], at[1:]
    same = (trace.lane[event[before]] == trace.lane[event[after]]) & (elements[:-1] > 0)
    same &= trace.steps.of_event[event[before]] == trace.steps.of_event[event[after]]
    exact = measured[:-1] & measured[1:]
    same &= np.where(exact, elements[:-1] == elements[1:], _close(facts, event[before], event[after], elements))
    adjacent = after == before + 1
    across = np.zeros(len(same), dtype=bool)
    for pair in np.flatnonzero(same & ~adjacent & exact).tolist():
        across[pair] = _steps_over(facts, rows[before[pair] + 1 : after[pair]], int(elements[pair]))
    joined = same & (adjacent | across)
    found = _chains(rows, at, elements, item_bytes, touched, measured, np.flatnonzero(joined), across)
    return _with_arithmetic(facts, found)


def _chains(
    rows: np.ndarray,
    at: np.ndarray,
    elements: np.ndarray,
    item_bytes: np.ndarray,
    touched: np.ndarray,
    measured: np.ndarray,
    joined: np.ndarray,
    across: np.ndarray,
) -> Chains:
    member = mask_of(len(at), joined)
    member[joined + 1] = True
    chosen = np.flatnonzero(member)
    linked = mask_of(len(at), joined + 1)
    begins = ~linked[chosen]
    chain = np.cumsum(begins) - 1
    count = int(chain[-1]) + 1 if len(chain) else 0
    first = chosen[begins]
    whole = np.ones(count, dtype=bool)
    np.logical_and.at(whole, chain, measured[chosen])
    reaches = np.zeros(count, dtype=bool)
    crossing = joined[across[joined]] if len(joined) else joined
    if len(crossing):
        reaches[chain[np.searchsorted(chosen, crossing)]] = True
    most = np.zeros(count, dtype=np.int64)
    np.maximum.at(most, chain, touched[chosen])
    return Chains(rows[at[chosen]], chain, elements[first], item_bytes[first], most, whole, reaches)


def _with_arithmetic(facts: Core, chains: Chains) -> Chains:
    """Chains that compute something: a row of equal conversions converts different tensors (MEM106)."""
    event = facts.trace.device_work[chains.row]
    computes = facts.family_of_name[facts.trace.name[event]] != FAMILIES.index("copy kernel")
    keep = mask_of(len(chains), chains.chain[computes])
    member = keep[chains.chain]
    number = np.cumsum(keep) - 1
    return Chains(
        chains.row[member],
        number[chains.chain[member]],
        chains.elements[keep],
        chains.item_bytes[keep],
        chains.touched[keep],
        chains.measured[keep],
        chains.across[keep],
    )


def _pointwise(facts: Core) -> np.ndarray:
    """Whether a kernel name is pointwise work, per name."""
    trace, family = facts.trace, facts.family_of_name
    apply = trace.name_mask(_APPLY) & (family == FAMILIES.index("normalisation"))
    copies = trace.name_mask(_COPY) & (family == FAMILIES.index("copy kernel"))
    return (family == FAMILIES.index("pointwise")) | apply | copies


def _compiled(facts: Core, launch: np.ndarray) -> np.ndarray:
    regions, calls = facts.of(measure_regions), facts.launches.call
    if not regions.present or len(calls) == 0:
        return np.zeros(len(launch), dtype=bool)
    at = np.minimum(np.searchsorted(calls, launch), len(calls) - 1)
    return (calls[at] == launch) & (regions.within[at] >= 0)


def _spread_again(facts: Core, rows: np.ndarray, reduces: np.ndarray, pointwise: np.ndarray) -> np.ndarray:
    """Which reductions are followed by a pointwise kernel that takes their result back to all elements.

    The shapes must show it: the next operator has an operand with as many elements as the reduction read, and one that
    is the same but for dimensions of size one. `rows` of `Trace.device_work` in stream order.
    """
    operator, lane = facts.trace.links.operator[rows], facts.trace.lane[facts.trace.device_work[rows]]
    result = np.zeros(len(rows), dtype=bool)
    candidates = np.flatnonzero(reduces[:-1] & pointwise[1:] & (lane[:-1] == lane[1:]))
    if len(candidates) == 0:
        return result
    examples, group = _distinct_shapes(facts, operator[np.concatenate((candidates, candidates + 1))])
    pairs, pair = np.unique(group.reshape(2, -1).T, axis=0, return_inverse=True)
    spreads = [_spreads(facts, int(examples[reduction]), int(examples[after])) for reduction, after in pairs.tolist()]
    result[candidates] = np.array(spreads, dtype=bool)[pair.reshape(-1)]
    return result


def _spreads(facts: Core, reduction: int, following: int) -> bool:
    read, taken = facts.signatures.of_row(reduction), facts.signatures.of_row(following)
    if read is None or taken is None or not read.tensors or not taken.tensors:
        return False
    whole = max(read.tensors, key=lambda tensor: tensor.numel).shape
    rows = [tensor.shape for tensor in taken.tensors if tensor.shape != whole and len(tensor.shape) == len(whole)]
    same = any(tensor.shape == whole for tensor in taken.tensors)
    # A single row for everything would make the pass wait for all of it.
    return same and any(
        all(size in (1, full) for size, full in zip(row, whole, strict=True)) and max(row) > 1 for row in rows
    )


def _elements(facts: Core, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Elements, bytes per element, bytes read and written, and whether shapes told, for kernels given as rows of
    `Trace.device_work`."""
    trace, signatures = facts.trace, facts.signatures
    operator = trace.links.operator[rows]
    examples, group = _distinct_shapes(facts, operator)
    number = np.full(len(examples), -1, dtype=np.int64)
    size = np.zeros(len(examples), dtype=np.int64)
    touched = np.zeros(len(examples), dtype=np.int64)
    for i, example in enumerate(examples.tolist()):
        signature = signatures.of_row(example)
        tensors = [t for t in (signature.tensors if signature else ()) if t.shape]
        if tensors:
            largest = max(tensors, key=lambda tensor: tensor.numel)
            number[i], size[i] = largest.numel, largest.itemsize
            touched[i] = sum(tensor.bytes for tensor in tensors) + largest.bytes
    elements, item_bytes = number[group], size[group]
    measured = elements > 0
    estimate, _ = _from_grid(facts, trace.device_work[rows])
    return np.where(measured, elements, estimate), item_bytes, touched[group], measured


def _distinct_shapes(facts: Core, operators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A row of `operator_args` per distinct pair of shapes and types (-1 for operators without), and the pair of each
    operator."""
    args = facts.trace["operator_args"]
    if len(args["event"]) == 0:
        return np.array([-1], dtype=np.int64), np.zeros(len(operators), dtype=np.int64)
    row = facts.trace.lookup("operator_args", operators)
    at = np.maximum(row, 0)
    key = args["dims_text"][at].astype(np.int64) * (len(facts.trace.texts) + 1) + args["types_text"][at]
    _, example, group = np.unique(np.where(row >= 0, key, -1), return_index=True, return_inverse=True)
    return row[example], group.reshape(-1)


def _from_grid(facts: Core, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elements that the grid covers, -1 if unknown, and how many of them one block covers."""
    trace, args = facts.trace, facts.trace["kernel_args"]
    unknown = np.full(len(events), -1, dtype=np.int64)
    if len(args["event"]) == 0:
        return unknown, unknown
    row = trace.lookup("kernel_args", events)
    at = np.maximum(row, 0)
    per_thread = np.ones(len(trace.names), dtype=np.int64)
    for name in np.unique(trace.name[events]).tolist():
        found = _PER_THREAD.search(trace.names[int(name)])
        if found:
            per_thread[name] = min(int(found[1] or found[2]), 1024)
    block = (
        args["block_x"][at].astype(np.int64)
        * args["block_y"][at]
        * args["block_z"][at]
        * per_thread[trace.name[events]]
    )
    grid = args["grid_x"][at] * args["grid_y"][at] * args["grid_z"][at]
    known = (row >= 0) & (block > 0) & (grid > 0)
    return np.where(known, grid * block, -1), np.where(known, block, -1)


def _close(facts: Core, before: np.ndarray, after: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """Whether two grids may cover the same elements: they differ by less than one block of the coarser kernel."""
    a, block_a = _from_grid(facts, before)
    b, block_b = _from_grid(facts, after)
    return (a > 0) & (b > 0) & (np.abs(a - b) < np.maximum(block_a, block_b))


def _steps_over(facts: Core, rows: np.ndarray, elements: int) -> bool:
    """Whether what lies between two pointwise kernels is one matrix product that does not read their elements."""
    trace, links = facts.trace, facts.trace.links
    events = trace.device_work[rows]
    family = facts.family_of_name[trace.name[events]]
    kernel = trace.kind[events] == Kind.KERNEL
    product = kernel & (family == FAMILIES.index("gemm"))
    helper = (kernel & (family == FAMILIES.index("gemm helper"))) | (trace.kind[events] == Kind.MEMSET)
    if not (product | helper).all() or len(np.unique(links.operator[rows[product]])) != 1:
        return False
    signature = facts.signatures.of(int(links.operator[rows[product]][0]))
    return signature is not None and not any(_may_be_read(tensor, elements) for tensor in signature.tensors)


def _may_be_read(tensor: Tensor, elements: int) -> bool:
    """Whether an operand may be what the chain wrote.

    A transposed matrix of that size is a weight and no activation: `linear` multiplies by `weight.t()`.
    """
    transposed = tensor.strides is not None and len(tensor.shape) == 2 and tensor.strides[0] == 1 < tensor.strides[1]
    return tensor.numel == elements and not transposed
