"""DIS102."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.sections.rank_causes import cause_of, context_name, described, main_cause
from lanewise.measure.distributed.late_ranks import OF_STEP, compare_ranks
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.ranks import Ranks
from lanewise.measure.distributed.together.matched_communications import match
from lanewise.measure.distributed.without_late import delays_of
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change, shorten
from lanewise.report.evidence_columns import CAUSE, MINE, MORE, OTHERS, WHERE
from lanewise.report.model import Block, TextBlock
from lanewise.report.quantity import count, share, text, time


@rule(
    "DIS102",
    "straggler",
    title="Rank {late} is late: its own work takes {more} more per step than the others' ({of_step} of the step), "
    "{what}.",
)
def straggler(facts: Facts, *, share_from: float = OF_STEP) -> Outcome:
    """One rank has more work of its own than the others, and all of them go at its pace.

    A collective ends when the last rank has joined. On the other ranks its kernel spins meanwhile, which looks like
    slow communication or a busy device. Who comes last in a recording is no sign: the profiler slows each host by its
    own factor. So the ranks' own work is compared, without the profiler and without waiting.

    Costs: what the late rank's own step would shorten without what it does more. The late rank's own findings say how
    to get it back, so it is not added to them.

    Fix: what the late rank does in that time: uneven input, data loading, logging on one rank, a slower card.

    Verify: `lanewise ranks` says that the ranks are even, and the step gets shorter.

    Silent: where the ranks' own work differs by less than six per cent of the step, or everywhere a little.

    Source: 8 ms injected on one rank of two H100s: 8.2 ms said; 3 and 4 ms on one of four H200s: 3.0 and 4.2 ms.
    """
    if not facts.is_family("communication").any():
        return NotApplicable("the trace holds no collectives")
    ranks = facts.ranks
    if ranks is None:
        return NeedsCapture("the traces of the other ranks, recorded over the same steps")
    everyone = (facts, *facts.peers)
    summaries = [summarise(one) for one in everyone]
    compared = compare_ranks(summaries, of_step=share_from)
    if not compared.late:
        return Clear("the ranks are even: no rank's own work takes much more than the others'")
    column_of = [next(at for at, one in enumerate(summaries) if one is rank) for rank in compared.ranks]
    job, delays = delays_of(compared, match(compared.ranks), lambda row: everyone[column_of[row]])
    late, gain = job.late[0], delays[0].gain_ns
    column = column_of[late.index]
    number = ranks.rank[column]
    chosen = np.flatnonzero(ranks.steady)
    steps = max(1, min(int(np.count_nonzero(one.steps.steady)) for one in everyone))
    rows: list[dict[str, Any]] = [
        {
            "more": one.more_ns,
            "mine": one.mine_ns,
            "others": one.others_ns,
            "cause": cause_of(one),
            "where": context_name(one.context),
        }
        for one in late.excess
    ]
    evidence: list[Block] = [
        table(f"What rank {number} does more, per step", [MORE, MINE, OTHERS, CAUSE, WHERE], rows),
        TextBlock(
            "The step would be up to {gain} shorter if rank {late} kept up; its own findings say how.",
            {"gain": time(gain), "late": count(number)},
        ),
    ]
    return Found(
        values={
            "late": count(number),
            "more": time(late.more_ns),
            "of_step": share(late.more_ns / job.step_ns if job.step_ns else 1.0),
            "what": text(described(main_cause(late)[0])),
            "gain": time(gain),
        },
        change=None if column == 0 else _in_time(facts, ranks, chosen, gain * steps),
        confidence="high" if len(everyone) > 2 else "medium",
        evidence=evidence,
        events=ranks.event[chosen, 0].tolist(),
    )


def _in_time(facts: Facts, ranks: Ranks, chosen: np.ndarray, gain_ns: float) -> Change:
    """The collectives of this rank without so much of their waiting as the late one causes."""
    events = ranks.event[chosen, 0]
    waits = np.maximum(facts.trace.duration[events] - ranks.shortest[chosen], 0)
    part = min(1.0, gain_ns / max(1.0, float(waits.sum())))
    return shorten(events, facts.trace.duration[events] - part * waits)
