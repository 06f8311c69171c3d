"""What is said of a job if it was timed while its plant was switched on and off in turns.

`lanewise run` times its steps a second or more after the turns, and meanwhile the same job with the same plant becomes up
to 17 % slower or quicker. So the answer is computed once more, with the steps that had the plant in place of those that
the recorder timed. The steps without it ran in between: what differs then is the model's error and not the host's drift.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from benchmarks.ranks.job import AHEAD

from lanewise.measure.core import Core
from lanewise.measure.distributed.gathering.read_ranks import read_ranks
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.together.matched_communications import match
from lanewise.measure.distributed.without_late import delays_of
from lanewise.trace.reader import read

__all__ = ["as_timed_in_turns", "said_in_turns"]


def said_in_turns(folder: Path, turns: dict[str, Any], late: int) -> dict[str, float]:
    """What the late rank does more and what the job would take without it, ms; nothing where that rank is not late.

    Args:
        folder: of the traces. turns: what was timed, as `truth_of` has it. late: the rank with the plant.
    """
    found = read_ranks([str(folder)], cache=False, workers=1)
    ranks = [as_timed_in_turns(one, turns) for one in found.ranks]
    job, delays = delays_of(compare_ranks(ranks), match(ranks), lambda row: Core(read(found.files[row], cache=False)))
    mine = [one for one in job.late if job.ranks[one.index].rank == late]
    if not mine:
        return {}
    gain = max(one.gain_ns for one in delays)
    return {
        "said_ms": mine[0].more_ns / 1e6,
        "said_with_ms": job.step_ns / 1e6,
        "said_without_ms": max(0.0, job.step_ns - gain) / 1e6,
    }


def as_timed_in_turns(rank: RankSummary, turns: dict[str, Any]) -> RankSummary:
    """A rank with the job's steps that had the plant in place of those that the recorder timed."""
    step, own = turns["with_ms"], turns["own_with_ms"][rank.rank]
    behind = [max(0.0, took - mine) * 1e6 for took, mine in zip(step, own, strict=True)]
    # Where its host never waits for its device, the recorder cannot tell either how early a rank is; but whether its host
    # is ahead by more than a step at the end.
    waits = bool(rank.own_timed_ns)
    ahead = not waits and AHEAD * (median(step) - median(own)) > median(own)
    return msgspec.structs.replace(
        rank,
        timed_ns=median(step) * 1e6,
        own_timed_ns=[one * 1e6 for one in own] if waits else [],
        behind_ns=behind if waits else [],
        ahead=ahead,
    )
