"""DIS102."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.measure.distributed.ranks import Ranks
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change, shorten
from lanewise.report.model import Block, TextBlock
from lanewise.report.quantity import count, share, text, time
from lanewise.trace.intervals import covered, subtract, union

_CLOCK_SPREAD_NS = 1_000_000


@rule(
    "DIS102",
    "straggler",
    title="Rank {late} comes last to {share} of the collectives; the others wait for it {waiting} per step "
    "({of_step} of the "
    "step).",
)
def straggler(
    facts: Facts, *, last_from: float = 0.70, waiting_from: float = 0.05, collectives_from: float = 3.0
) -> Outcome:
    """One rank reaches the collectives later than the others, and all of them go at its pace.

    A collective ends when the last rank has joined. On the other ranks its kernel spins meanwhile, which looks like
    slow communication or a busy device.

    Costs: what the step would shorten if the late rank kept up: no further than the slowest of the others allows. The
    late rank's own findings say how to get it back, so it is not added to them.

    Fix: what the findings of the late rank say: uneven input, data loading, logging on one rank, a slower host.

    Verify: the ranks come last in turn, and the step gets shorter.

    Silent: with fewer than three collectives per step, and where clocks or sizes show that the collectives are not
    the same.

    Source: HTA; TraceLens; 8 ms injected on one rank of two made the other wait 80 % of its step on our H100s.
    """
    if not facts.is_family("communication").any():
        return NotApplicable("the trace holds no collectives")
    ranks = facts.ranks
    if ranks is None:
        return NeedsCapture("the traces of the other ranks, recorded over the same steps")
    everyone = (facts, *facts.peers)
    steps = max(1, min(int(np.count_nonzero(one.steps.steady)) for one in everyone))
    chosen = np.flatnonzero(ranks.steady)
    if len(chosen) < collectives_from * steps:
        return NotApplicable(f"{len(chosen) / steps:g} matched collectives per step are too few to name a late rank")
    if ranks.clock_spread > _CLOCK_SPREAD_NS:
        return NeedsCapture("traces of all ranks over the same steps: the ends of these collectives do not agree")
    counts = np.bincount(ranks.last[chosen], minlength=len(everyone))
    late = int(np.argmax(counts))
    often = counts[late] / len(chosen)
    waiting = ranks.waiting[chosen].sum(axis=0) / steps
    others = [column for column in range(len(everyone)) if column != late]
    waited = float(np.mean(waiting[others]))
    step_ns = max(1.0, facts.steps.step_ns)
    if often < last_from or waited < waiting_from * step_ns:
        return Clear(
            f"rank {ranks.rank[late]} comes last to {often:.0%} of the collectives; the others wait "
            f"{waited / step_ns:.1%} of the step"
        )
    period = max(one.steps.period_ns for one in everyone)
    gain = max(0.0, period - max(_own_pace(everyone[column]) for column in others))
    rows: list[dict[str, Any]] = [
        {
            "rank": ranks.rank[column],
            "last": float(counts[column] / len(chosen)),
            "waits": float(waiting[column]),
            "regime": one.regime.name,
            "host": _host_active(one),
            "device": _device_active(one),
        }
        for column, one in enumerate(everyone)
    ]
    evidence: list[Block] = [
        table(
            "Ranks",
            {
                "rank": ("count", "rank"),
                "last": ("share", "comes last"),
                "waits": ("time", "waits per step"),
                "regime": ("text", "bound by"),
                "host": ("time", "host at work"),
                "device": ("time", "device at work"),
            },
            rows,
        ),
        _skew(ranks, chosen),
        TextBlock(
            "The step would be up to {gain} shorter if rank {late} kept up; its own findings say how.",
            {"gain": time(gain), "late": count(ranks.rank[late])},
        ),
    ]
    return Found(
        values={
            "late": count(ranks.rank[late]),
            "share": share(float(often)),
            "waiting": time(waited),
            "of_step": share(waited / step_ns),
            "gain": time(gain),
            "regime": text(everyone[late].regime.name),
        },
        change=None if late == 0 else _in_time(facts, ranks, chosen, gain * steps),
        confidence="high" if ranks.clock_spread >= 0 else "medium",
        evidence=evidence,
        events=ranks.event[chosen, 0].tolist(),
    )


def _in_time(facts: Facts, ranks: Ranks, chosen: np.ndarray, gain_ns: float) -> Change:
    """The collectives of this rank without so much of their waiting as the others could do without the late one."""
    events = ranks.event[chosen, 0]
    waits = np.maximum(facts.trace.duration[events] - ranks.shortest[chosen], 0)
    part = min(1.0, gain_ns / max(1.0, float(waits.sum())))
    return shorten(events, facts.trace.duration[events] - part * waits)


def _skew(ranks: Ranks, chosen: np.ndarray) -> Block:
    """The collectives that made a rank wait longest."""
    worst = chosen[np.argsort(-ranks.waiting[chosen].max(axis=1), kind="stable")][:5]
    rows = [
        {
            "number": int(row) + 1,
            "late": ranks.rank[int(ranks.last[row])],
            "transfer": float(ranks.shortest[row]),
            "waits": float(ranks.waiting[row].max()),
        }
        for row in worst.tolist()
    ]
    return table(
        "Longest waits",
        {
            "number": ("count", "collective"),
            "late": ("count", "last rank"),
            "transfer": ("time", "transfer"),
            "waits": ("time", "longest wait"),
        },
        rows,
    )


def _own_pace(facts: Facts) -> float:
    """How fast a rank could go without waiting for others, ns per step: its host's work or its device's."""
    return max(_host_active(facts), _device_active(facts))


def _host_active(facts: Facts) -> float:
    """Time of a step on the host less the blocking waits in it, ns."""
    trace, steady = facts.trace, facts.steps.steady
    start, end = trace.steps.start[steady], trace.steps.end[steady]
    waits = np.flatnonzero(facts.host.waiting)
    blocked = covered(union(trace.start[waits], trace.end[waits]), start, end)
    return float(np.mean(end - start - blocked)) if len(start) else 0.0


def _device_active(facts: Facts) -> float:
    """Time of a step in which the device does something other than communicate, ns."""
    steady, classes = facts.steps.steady, facts.classes
    spinning = subtract(classes.busy, classes.sets["compute"])
    own = subtract(classes.busy, subtract(spinning, classes.sets["transfer"]))
    own_time = covered(own, classes.window_start[steady], classes.window_end[steady])
    return float(np.mean(own_time)) if len(own_time) else 0.0
