"""MEM107."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, host_cost, named, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.launch.library_setup import opaque_operators
from lanewise.measure.signatures import Argument, Tensor
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import BYTES, COUNT, DEVICE, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import byte_size, count, text, time
from lanewise.trace.schema import Kind

# An operator that plans longer than this for a launch pays for something beyond it.
_PLANS_FROM_NS = 100_000


@rule(
    "MEM107",
    "growing-cache",
    title="{cats} {per} to append one element to a cache by copying all of it ({device} on the GPU, {host} on the "
    "host); it grew from {first} to {last} elements.{planned}",
)
def growing_cache(facts: Facts, *, growths_from: int = 3) -> Outcome:
    """The key-value cache grows by `cat`: every token copies all earlier ones into a new, larger tensor.

    The copies grow with the length, every step allocates anew, and the changing shapes keep the loop from being
    captured in a CUDA graph. Libraries that plan per shape (cuDNN's attention) plan again for every length, which may
    cost a thousand times what the copies do.

    Costs: the `cat` calls, on the device or on the host; on the host also the self time of operators that plan for each
    new length.

    Fix: a static cache of the largest length that is written in place (`index_copy_`, slices), as in transformers'
    `StaticCache`.

    Verify: no `cat` that grows.

    Silent: for rotary embeddings, which join two halves of constant size.

    Source: gpt-fast; 35.9 ms per token against 0.10 ms with a static cache on our H100, 99 % of it cuDNN's planning.
    """
    trace, leaves = facts.trace, facts.leaves
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    cats = np.flatnonzero(np.isin(trace.name[leaves.operator], trace.name_ids("aten::cat")))
    if len(cats) == 0:
        return Clear("nothing is joined by `cat`")
    steps = facts.steady_count
    if not facts.health.shapes:
        tokens = len(facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::argmax", "aten::multinomial"))) / steps
        if tokens < 1:
            return Clear("no token is chosen in the steady steps: nothing generates")
        return NeedsCapture("shapes, to see whether `cat` grows a cache: `record_shapes=True`")
    growing = _growing(facts, cats, growths_from)
    if not growing:
        return Clear("no `cat` grows by one element from call to call")
    mine = np.array([leaf for series in growing for leaf, _ in series], dtype=np.int64)
    lengths = [length for series in growing for _, length in series]
    rows = leaves.rows(mine)
    calls = trace.links.launch[rows]
    device_ns, host_ns = device_sum(facts, rows), host_cost(facts, calls)
    planning = _planned_anew(facts, growing, growths_from)
    planned_ns = float(facts.host.self_time[planning].sum()) / steps
    table_rows: list[dict[str, Any]] = []
    for series in growing[:8]:
        call = facts.signatures.of(int(leaves.operator[series[-1][0]]))
        cache = _cache(call.inputs[0])[0] if call else None
        table_rows.append(
            {
                "shape": "x".join(map(str, cache.shape)) if cache else "",
                "count": len(series) / steps,
                "bytes": cache.bytes if cache else -1,
                "device": float(leaves.time[[leaf for leaf, _ in series]].mean()),
            }
        )
    return Found(
        values={
            "cats": counted(len(mine) / steps, "call of cat", "calls of cat"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
            "first": count(min(lengths)),
            "last": count(max(lengths)),
            "planned": text(
                f" {trace.name_of(int(planning[-1]))} plans again for each length: {time(planned_ns)}."
                if len(planning)
                else ""
            ),
            "bytes": byte_size(max(0, max(row["bytes"] for row in table_rows))),
        },
        change=remove(facts, trace.device_work[rows])
        + cheaper(planning, 1 - facts.host.self_time[planning] / np.maximum(trace.duration[planning], 1)),
        evidence=[
            table(
                "Caches that grow",
                [
                    TableColumn("shape", "text", "shape at the end"),
                    headed(COUNT, "calls per step"),
                    headed(BYTES, "size"),
                    headed(DEVICE, "time of a call"),
                ],
                table_rows,
            )
        ],
        location=locate(facts, int(leaves.operator[mine[0]])),
        events=[*claim(facts, rows), *planning.tolist()],
    )


def _growing(facts: Facts, cats: np.ndarray, at_least: int) -> list[list[tuple[int, int]]]:
    """Series of calls whose first operand grows by one from one to the next, each a list of (leaf, length)."""
    ends: dict[tuple[Any, ...], dict[int, list[list[tuple[int, int]]]]] = defaultdict(lambda: defaultdict(list))
    series: list[list[tuple[int, int]]] = []
    for leaf in cats.tolist():
        call = facts.signatures.of(int(facts.leaves.operator[leaf]))
        cache, dim = _cache(call.inputs[0]) if call and call.inputs else (None, -1)
        if cache is None:
            continue
        length = cache.shape[dim]
        kind = (dim, *cache.shape[:dim], -1, *cache.shape[dim + 1 :], facts.trace.lane[facts.leaves.operator[leaf]])
        waiting = ends[kind][length - 1]
        # Layers call in turn: the series that waited longest continues.
        current = waiting.pop(0) if waiting else []
        if not current:
            series.append(current)
        current.append((leaf, length))
        ends[kind][length].append(current)
    return [calls for calls in series if len(calls) >= at_least]


def _planned_anew(facts: Facts, growing: list[list[tuple[int, int]]], at_least: int) -> np.ndarray:
    """Operators that spend their time planning, on a tensor as long as the cache has just become, for several
    lengths."""
    trace = facts.trace
    leaves = np.array([leaf for series in growing for leaf, _ in series], dtype=np.int64)
    length = np.array([length + 1 for series in growing for _, length in series], dtype=np.int64)
    start = trace.start[facts.leaves.operator[leaves]]
    order = np.argsort(start, kind="stable")
    lengths_of: dict[int, set[int]] = defaultdict(set)
    events: list[int] = []
    for event in opaque_operators(facts, above_ns=_PLANS_FROM_NS).tolist():
        at = int(np.searchsorted(start[order], trace.start[event], side="right")) - 1
        call = facts.signatures.of(event)
        if at < 0 or call is None:
            continue
        now = int(length[order[at]])
        if any(len(t.shape) >= 3 and now in t.shape for t in _tensors(call.inputs)):
            lengths_of[int(trace.name[event])].add(now)
            events.append(event)
    return np.array([e for e in events if len(lengths_of[int(trace.name[e])]) >= at_least], dtype=np.int64)


def _tensors(inputs: tuple[Argument, ...]) -> list[Tensor]:
    return [value for value in inputs if isinstance(value, Tensor)]


def _cache(value: Any) -> tuple[Tensor | None, int]:
    """The cache and the dimension in which exactly one element is appended to it; (None, -1) for any other `cat`."""
    if not isinstance(value, tuple) or isinstance(value, Tensor) or len(value) != 2:
        return None, -1
    cache, new = value
    if not isinstance(cache, Tensor) or not isinstance(new, Tensor) or len(cache.shape) != len(new.shape):
        return None, -1
    different = [at for at, (a, b) in enumerate(zip(cache.shape, new.shape, strict=True)) if a != b]
    if len(different) != 1 or new.shape[different[0]] != 1 or cache.shape[different[0]] < 2:
        return None, -1
    return cache, different[0]
