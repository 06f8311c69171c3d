"""SYN105."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, of_step, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import CALL, COUNT, SITE, WAIT, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.intervals import covered, union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_OF_A_COLLECTIVE = (
    "let the stream wait for the collective and not the host (`work.wait()`, `stream.wait_event()`), and do first what "
    "does not need its result."
)


@rule(
    "SYN105",
    "explicit-synchronize",
    title="{waits} {per} for the whole device or a stream, {time} in all; they make the host late by {after} "
    "({share} of the step).",
)
def explicit_synchronize(facts: Facts, *, share_from: float = 0.01) -> Outcome:
    """The program synchronises in its loop: `torch.cuda.synchronize()`, `stream.synchronize()`.

    While the host waits it launches nothing; when the wait ends the queue is empty, and the device idles until the host
    has caught up. The wait itself is device time and costs nothing extra.

    Costs: what the device idles between the end of the wait and the next launch, as far as the wait made the host late: a
    wait that returns at once costs nothing, whatever the host does after it.

    Fix: remove the call, or wait for an event that is one step old; time with events instead of synchronising.

    Verify: the calls are gone and the host runs ahead again.

    Silent: for the profiler's own final synchronisation, for waits inside copies and readbacks (SYN101, SYN103), and
    for event waits (SYN106).

    Source: PyTorch's performance tuning guide; Nsight Systems' expert rules.
    """
    trace, host = facts.trace, facts.host
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    waits = trace.links.calls("wait")
    waits = facts.steady_events(waits[host.waiting[waits]])
    waits = waits[~trace.name_mask("[eE]vent")[trace.name[waits]]]
    # Inside an operator the wait belongs to a copy or a readback; a user's call has no operator around it.
    waits = waits[nearest(host.parent, trace.kind == Kind.OPERATOR, waits) < 0]
    if len(waits) == 0:
        return Clear("the loop synchronises nowhere")
    starts = np.sort(trace.start[facts.launches.call])
    row = np.searchsorted(starts, trace.end[waits])
    until = np.where(row < len(starts), starts[np.minimum(row, len(starts) - 1)], trace.end[waits])
    follows = covered(facts.classes.sets["host"], trace.end[waits], until)
    after = np.minimum(follows, trace.duration[waits])
    steps = facts.steady_count
    # Nothing is recorded after the last step's last wait: what follows those of the other steps stands for it.
    seen = np.count_nonzero(row < len(starts))
    ends = len(waits) / max(1, int(seen)) if steps > 1 else 1.0
    after = after * ends
    possible = float(follows.sum()) / steps * ends
    idle = float(after.sum()) / steps
    # A wait that recording made short, as it slowed the host, may be long without: what it costs then the replay tells.
    if possible < share_from * facts.steps.step_ns:
        return Clear(f"after its waits the device idles for {of_step(facts, possible):.1%} of the step")
    places = sites(facts, waits)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        mine = places.of_event == at
        rows.append(
            {
                "call": trace.name_of(int(places.example[at])),
                "site": label,
                "count": int(mine.sum()) / steps,
                "wait": float(trace.duration[waits[mine]].sum()) / steps,
                "after": float(after[mine].sum()) / steps,
            }
        )
    rows.sort(key=lambda row: -row["after"])
    spinning = trace.device_work[facts.is_family("communication")]
    spins = covered(union(trace.start[spinning], trace.end[spinning]), trace.start[waits], trace.end[waits])
    # What follows may need what the collective brings: how much of it could begin before, the trace does not say.
    collective = float(spins.sum()) > 0.5 * float(trace.duration[waits].sum())
    return Found(
        values={
            "waits": counted(len(waits) / steps, "wait", "waits"),
            "per": per(facts),
            "time": time(float(trace.duration[waits].sum()) / steps),
            "after": time(idle),
            "share": share(of_step(facts, idle)),
        },
        change=remove(facts, waits),
        bound=collective,
        fix=_OF_A_COLLECTIVE if collective else None,
        evidence=[
            table(
                "Waits, and how late the host is after them",
                [CALL, SITE, COUNT, headed(WAIT, "wait"), TableColumn("after", "time", "late by it")],
                rows,
            )
        ],
        location=locate(facts, int(waits[np.argmax(after)])),
        events=waits.tolist(),
    )
