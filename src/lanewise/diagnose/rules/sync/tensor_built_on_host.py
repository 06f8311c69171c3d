"""SYN107."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.host_copies import host_copies
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import climb, counted, enclosing, named, outermost, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.signatures import whole_of
from lanewise.replay.change import cut
from lanewise.report.evidence_columns import BYTES, COUNT, SITE, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import byte_size, text, time
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

_FILLS = (
    "aten::fill_",
    "aten::zero_",
    "aten::normal_",
    "aten::uniform_",
    "aten::random_",
    "aten::bernoulli_",
    "aten::exponential_",
)
_CREATED = (
    r"^aten::(zeros|ones|full|rand|randn|randint|arange|linspace|eye|zeros_like|ones_like|full_like|rand_like|"
    r"randn_like|new_zeros|new_ones|new_full)$"
)
_MOVES = ("aten::to", "aten::_to_copy", "aten::copy_")


@rule(
    "SYN107",
    "tensor-built-on-host",
    title="{tensors} {per} created on the CPU ({creator} first) and copied to the GPU right after: {total} for "
    "{bytes}.",
)
def tensor_built_on_host(facts: Facts, *, per_step_from: float = 1.0) -> Outcome:
    """A tensor of zeros, ones, random numbers, a range or a Python list is filled by the CPU and then moved.

    The device could fill it itself in a few microseconds, without the copy and without the wait that a copy from
    ordinary memory brings. It cannot read a Python list: `torch.tensor(values, device="cuda")` goes through every value in
    Python's objects, makes a tensor on the CPU and copies that.

    Costs: the creation, reading a list included, and the copy's call.

    Fix: pass `device="cuda"` to the call that creates it; make a tensor of a list once, before the loop, or keep the
    values in a tensor from the start.

    Verify: the copy is gone.

    Silent: for tensors that come out of a data loader.

    Source: torch/profiler/_pattern_matcher.py (ExtraCUDACopyPattern).
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = host_copies(facts)
    found = found.of((found.direction == "HtoD") & (trace.links.operator[found.row] >= 0))
    if len(found.row) == 0:
        return Clear("nothing is copied to the device in steady steps")
    through = mask_of(len(trace.names), trace.name_ids(*_MOVES))
    root = climb(facts, trace.links.operator[found.row], through)
    before, after = _beside(facts, root)
    of_list = (before >= 0) & (after >= 0)
    of_list &= np.isin(trace.name[before], trace.name_ids("aten::empty"))
    of_list &= np.isin(trace.name[after], trace.name_ids("aten::lift_fresh"))
    created = np.where(of_list | trace.name_mask(_CREATED)[trace.name[before]], before, -1)
    if not (created >= 0).any():
        return Clear("no tensor is created on the CPU right before it is copied")
    if not (facts.health.shapes or of_list.any()):
        return NeedsCapture("shapes, to tell the created tensor from another one: `record_shapes=True`")
    size = np.where(of_list, found.bytes, _created_bytes(facts, np.where(of_list, -1, created)))
    fits = (created >= 0) & (size == found.bytes) & (size > 0)
    root, created, size, call = root[fits], created[fits], size[fits], found.call[fits]
    of_list, after = of_list[fits], after[fits]
    steps = facts.steady_count
    if len(root) / steps < per_step_from:
        return Clear("what is created on the CPU is not what is copied")
    # Of a list an empty tensor is made, the values are read, with no row of their own, and the copy begins.
    filled = np.where(of_list, trace.start[root], trace.end[created])
    creation = filled - trace.start[created]
    cost = creation + trace.duration[call]
    places = sites(facts, created)
    table_rows: list[dict[str, Any]] = []
    for i, label in enumerate(places.label):
        mine = places.of_event == i
        table_rows.append(
            {
                "site": label,
                "count": int(mine.sum()) / steps,
                "bytes": float(size[mine].mean()),
                "create": float(creation[mine].sum()) / steps,
                "copy": float(trace.duration[call[mine]].sum()) / steps,
            }
        )
    table_rows.sort(key=lambda row: -row["create"] - row["copy"])
    most = int(np.argmax(cost))
    gone = np.concatenate((created, root, after[of_list]))
    return Found(
        values={
            "tensors": counted(len(root) / steps, "tensor", "tensors"),
            "per": per(facts),
            "creator": text("torch.tensor" if of_list[most] else trace.name_of(int(created[most]))),
            "total": time(float(cost.sum()) / steps),
            "bytes": byte_size(float(size.sum()) / steps),
        },
        change=remove(facts, gone) + cut(trace.end[created[of_list]], trace.start[root[of_list]]),
        evidence=[
            table(
                "Tensors created on the CPU",
                [
                    headed(SITE, "created by"),
                    COUNT,
                    headed(BYTES, "size"),
                    TableColumn("create", "time", "creation"),
                    TableColumn("copy", "time", "call of the copy"),
                ],
                table_rows,
            )
        ],
        location=locate(facts, int(created[most])),
        events=[*created.tolist(), *np.unique(call).tolist()],
    )


def _beside(facts: Facts, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operators right before and right after each root, below the same parent; -1 where there is none."""
    trace, parent = facts.trace, facts.host.parent
    siblings = facts.steady_events(trace.of(Kind.OPERATOR))
    order = siblings[np.lexsort((trace.start[siblings], parent[siblings], trace.lane[siblings]))]
    position = np.full(len(trace), -1, dtype=np.int64)
    position[order] = np.arange(len(order))

    def neighbour(step: int) -> np.ndarray:
        at = position[root] + step
        there = (position[root] >= 0) & (at >= 0) & (at < len(order))
        other = order[np.clip(at, 0, len(order) - 1)]
        same = there & (parent[other] == parent[root]) & (trace.lane[other] == trace.lane[root])
        return np.where(same, other, -1)

    return neighbour(-1), neighbour(1)


def _created_bytes(facts: Facts, created: np.ndarray) -> np.ndarray:
    """Bytes of what each creating operator fills; -1 if its shapes do not tell."""
    trace = facts.trace
    result = np.full(len(created), -1, dtype=np.int64)
    fills = named(facts, (Kind.OPERATOR,), *_FILLS)
    known = created[created >= 0]
    holder = enclosing(facts, outermost(facts, np.unique(known)), fills) if len(known) else fills[:0]
    size_of: dict[int, int] = {}
    for fill, owner in zip(fills[holder >= 0].tolist(), holder[holder >= 0].tolist(), strict=True):
        call = facts.signatures.of(fill)
        target = call.tensor(0) if call else None
        if target is not None:
            size_of[owner] = target.numel * target.itemsize
    for row, event in enumerate(created.tolist()):
        if event in size_of:
            result[row] = size_of[event]
        elif event >= 0 and trace.name_of(event) == "aten::arange":
            result[row] = _range_bytes(facts, event)
    return result


def _range_bytes(facts: Facts, event: int) -> int:
    """Bytes of `arange` with whole bounds, which is int64 by default."""
    call = facts.signatures.of(event)
    if call is None:
        return -1
    bounds = [value for value in map(whole_of, call.concrete[:3]) if value is not None]
    if not bounds:
        return -1
    low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    step = bounds[2] if len(bounds) > 2 and bounds[2] else 1
    return max(0, -(-(high - low) // step)) * 8
