"""Clocks of the hosts of a job beside each other: a collective ends on all of its ranks at the same moment.

Kernels of one collective end within microseconds of each other, whatever their ranks waited before. So how far the ends lie
apart, in the median over many collectives, is how far the clocks do; what is left is the uncertainty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.together.matched_communications import Matched

__all__ = ["Clocks", "align_clocks"]

_MAD = 1.48
"""A median distance as a standard deviation of a normal distribution."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """Clocks of the ranks against that of the first one with a collective.

    Attributes:
        offset: what each clock is ahead, ns; NaN for a rank that shares no collective with the others. By wall clock where
            the trace has one, else by the trace's own.
        uncertainty: how far the ends of matched collectives lie apart once that is taken off, ns, a standard deviation; NaN
            as above.
    """

    offset: np.ndarray
    uncertainty: np.ndarray


def align_clocks(ranks: Sequence[RankSummary], together: Matched) -> Clocks:
    """Align the clocks, over several groups where no collective is of all ranks."""
    ends = [
        [(row, one.end + ranks[row].base_ns) for row, one in seen] for seen in together.collectives if len(seen) > 1
    ]
    offset: dict[int, int] = {}
    while True:
        if not offset:
            first = min((row for seen in ends for row, _ in seen), default=None)
            if first is None:
                break
            offset[first] = 0
        apart: defaultdict[int, list[int]] = defaultdict(list)
        for seen in ends:
            known = [end - offset[row] for row, end in seen if row in offset]
            if not known or len(known) == len(seen):
                continue
            moment = sorted(known)[len(known) // 2]
            for row, end in seen:
                if row not in offset:
                    apart[row].append(end - moment)
        if not apart:
            break
        for row, found in apart.items():
            offset[row] = sorted(found)[len(found) // 2]
    left: defaultdict[int, list[int]] = defaultdict(list)
    for seen in ends:
        even = [(row, end - offset[row]) for row, end in seen if row in offset]
        if len(even) < 2:
            continue
        moments = sorted(end for _, end in even)
        for row, end in even:
            left[row].append(abs(end - moments[len(moments) // 2]))
    spread = {row: _MAD * float(np.median(found)) for row, found in left.items()}
    rows = range(len(ranks))
    return Clocks(
        np.array([offset.get(row, np.nan) for row in rows], dtype=np.float64),
        np.array([spread.get(row, np.nan) for row in rows]),
    )
