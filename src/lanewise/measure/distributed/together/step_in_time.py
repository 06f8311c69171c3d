"""What the ranks of a job did together in one step, each by its own clock, for a page that puts them beside each other.

Locked on a collective, clocks of hosts need not agree: it ends everywhere at the same moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lanewise.measure.distributed.late_ranks import Job
from lanewise.measure.distributed.together.bus_bandwidth import kind_of
from lanewise.measure.distributed.together.matched_communications import Matched, Seen

__all__ = ["step_in_time"]

_RANKS, _MEETINGS = 64, 400
"""Shown at most."""


def step_in_time(job: Job, together: Matched) -> dict[str, Any] | None:
    """Collectives and transfers of one step, as recorded; None where nothing is matched.

    Of very many ranks the late ones and some of the others are shown. Times are ns from the beginning of what the rank did
    first in that step.
    """
    found = [*together.collectives, *together.transfers]
    steps = Counter(seen[0][1].step for seen in found)
    if not steps:
        return None
    # One in the middle of those with most of them: first and last steps may be cut off.
    full = sorted(step for step, number in steps.items() if number == max(steps.values()))
    step = full[len(full) // 2]
    mine = sorted((seen for seen in found if seen[0][1].step == step), key=lambda seen: seen[0][1].arrival)[:_MEETINGS]
    rows = _shown(job)
    spans = [_spans(mine, row) for row in rows]
    return {
        "step": step,
        "left_out": steps[step] - len(mine),
        "rows": rows,
        "meetings": [
            {
                "what": kind_of(seen[0][1].name),
                "bytes": seen[0][1].bytes,
                "moving": min(one.end - one.arrival for _, one in seen),
            }
            for seen in mine
        ],
        "spans": spans,
    }


def _shown(job: Job) -> list[int]:
    late = [one.index for one in job.late[: _RANKS // 2]]
    others = [row for row in range(len(job.ranks)) if row not in late]
    at = np.linspace(0, len(others) - 1, min(len(others), _RANKS - len(late))).astype(np.int64)
    return sorted([*late, *(others[row] for row in at.tolist())])


def _spans(meetings: Sequence[Sequence[Seen]], row: int) -> list[tuple[int, int] | None]:
    """When the rank came to each, and when it was over; None where it is not in it."""
    mine = [next((one for other, one in seen if other == row), None) for seen in meetings]
    begun = min((one.arrival for one in mine if one is not None), default=0)
    return [None if one is None else (one.arrival - begun, one.end - begun) for one in mine]
