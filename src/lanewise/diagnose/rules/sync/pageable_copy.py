"""SYN103."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.host_copies import host_copies
from lanewise.diagnose.of_tree.tree_copies import tree_copies
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.readbacks import SMALL_BYTES
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, of_step, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.replay.change import drop_wait, shorten
from lanewise.report.evidence_columns import BYTES, COUNT, DIRECTION, SITE, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import bandwidth, byte_size, time
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

# Pinned memory over PCIe 5 with 16 lanes: 54 GB/s measured on our H100, bytes/s.
_PINNED_RATE = 50e9


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    found = tree_copies(contexts)
    found = found.of(found.pageable & ~((found.direction == "DtoH") & (found.bytes <= SMALL_BYTES)))
    if len(found.copy) == 0:
        return Clear("no pageable copies")
    if not (found.number * 2 > 1).any():
        return Clear("pageable copies are made in half of the steps or fewer")
    blocked = float(found.blocked.sum())
    if contexts.of_step(blocked) < share_from:
        return Clear(f"pageable copies block the host for {contexts.of_step(blocked):.1%} of the step")
    moved = found.bytes * found.number
    return Found(
        values={
            "copies": counted(float(found.number.sum()), "copy", "copies"),
            "per": contexts.per,
            "blocked": time(blocked),
            "bytes": byte_size(float(moved.sum())),
            "rate": bandwidth(float(moved.sum()) / max(1.0, blocked) * 1e9),
        },
        saves=contexts.blocking(np.unique(found.operator)),
        evidence=[
            table(
                "Pageable copies",
                [
                    headed(SITE, "copied by"),
                    headed(COUNT, "copies"),
                    BYTES,
                    TableColumn("blocked", "time", "host blocked"),
                ],
                contexts.by_site(found.operator, count=found.number, bytes=moved, blocked=found.blocked),
            )
        ],
        location=contexts.location(int(found.operator[np.argmax(found.blocked)])),
    )


@rule(
    "SYN103",
    "pageable-copy",
    of_tree=_of_tree,
    title="{copies} {per} through ordinary (pageable) host memory: the host is blocked for {blocked} ({bytes} at "
    "{rate}).",
)
def pageable_copy(facts: Facts, *, share_from: float = 0.01) -> Outcome:
    """Copies from or to ordinary host memory: the driver moves them through its own buffer while the caller waits.

    The device cannot read pageable memory directly. The driver copies the data piece by piece into pinned memory first,
    which is several times slower than a direct copy, and the call returns only when that is done: nothing else is
    launched meanwhile.

    Costs: the whole duration of the calls, if the copies could be hidden behind computation completely; at least what
    the detour adds to a direct copy of the same bytes.

    Fix: let the loader pin its batches (`DataLoader(pin_memory=True)`) and copy with `.to(device, non_blocking=True)`.
    Do not call `.pin_memory().to()` in the loop: pinning costs a copy of its own.

    Verify: the copies are named `Pinned -> Device` and their calls return within 50 us.

    Silent: for copies that only some steps make, and for readbacks of single values (SYN101).

    Source: PyTorch's tutorial on pinned memory; the same 256 MB took 7 GB/s pageable and 54 GB/s pinned on our H100.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = host_copies(facts)
    readback = (found.direction == "DtoH") & (found.bytes >= 0) & (found.bytes <= SMALL_BYTES)
    found = found.of(found.pageable & ~readback)
    copies, calls, size, direction = found.event, found.call, np.maximum(found.bytes, 0), found.direction
    if len(copies) == 0:
        return Clear("no pageable copies in the steady steps")
    steps = facts.steady_count
    if len(np.unique(trace.steps.of_event[copies])) * 2 <= steps:
        return Clear("pageable copies are made in half of the steps or fewer")
    blocked = float(trace.duration[calls].sum()) / steps
    if blocked < share_from * facts.steps.step_ns:
        return Clear(f"pageable copies block the host for {of_step(facts, blocked):.1%} of the step")

    places = sites(facts, calls)
    table_rows: list[dict[str, Any]] = []
    ways = np.unique(direction)
    for i, label in enumerate(places.label):
        for way in ways:
            mine = (places.of_event == i) & (direction == way)
            if mine.any():
                moved, took = float(size[mine].sum()), float(trace.duration[copies[mine]].sum())
                table_rows.append(
                    {
                        "site": label,
                        "direction": str(way),
                        "count": int(mine.sum()) / steps,
                        "bytes": moved / steps,
                        "rate": moved / took * 1e9 if took else 0.0,
                        "blocked": float(trace.duration[calls[mine]].sum()) / steps,
                    }
                )
    table_rows.sort(key=lambda row: -row["blocked"])
    took = max(1, int(trace.duration[calls].sum()))
    return Found(
        values={
            "copies": counted(len(copies) / steps, "copy", "copies"),
            "per": per(facts),
            "blocked": time(blocked),
            "bytes": byte_size(float(size.sum()) / steps),
            "rate": bandwidth(float(size.sum()) / took * 1e9),
        },
        change=drop_wait(calls)
        + remove(facts, _waits_after(facts, calls))
        + shorten(copies, size / _PINNED_RATE * 1e9),
        spread=0.3,
        evidence=[
            table(
                "Pageable copies",
                [
                    headed(SITE, "copied by"),
                    DIRECTION,
                    headed(COUNT, "copies"),
                    BYTES,
                    TableColumn("rate", "bandwidth", "rate of the copy"),
                    TableColumn("blocked", "time", "host blocked"),
                ],
                table_rows,
            )
        ],
        location=locate(facts, int(calls[np.argmax(trace.duration[calls])])),
        events=np.unique(calls).tolist(),
    )


def _waits_after(facts: Facts, calls: np.ndarray) -> np.ndarray:
    """The waits in the same operators: `to` and `copy_` make one behind a copy that is not `non_blocking`."""
    waits = facts.trace.links.calls("wait")
    around = nearest(facts.host.parent, facts.trace.kind == Kind.OPERATOR, np.concatenate((calls, waits)))
    of_calls, of_waits = around[: len(calls)], around[len(calls) :]
    return waits[(of_waits >= 0) & np.isin(of_waits, of_calls)]
