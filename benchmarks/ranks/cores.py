"""Which processors each rank of a job runs on, so that what its host takes does not depend on who runs beside it.

Two threads on one core take up to twice as long. Where the system put a rank's first thread beside one that spins (a rank
that waits for the other does), a loop of plain Python took 4.3 ms for a second and 8.5 for the next, in the same job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Share", "cores_of", "shares_of"]

_LEAST = 2
"""Cores that a rank needs for that: one for its first thread, and one for all of its others."""


@dataclass(frozen=True)
class Share:
    """Processors of one rank: `first` for its first thread alone, `others` for the threads that it begins."""

    first: list[int]
    others: list[int]


def cores_of(allowed: Collection[int]) -> list[list[int]]:
    """Processors by core. Where the system does not say which share one, as in a virtual machine, two in a row may."""
    found: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        file = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        together = file.read_text().strip() if file.exists() else str(cpu)
        found.setdefault(together if not together.isdigit() else f"pair {cpu // 2}", []).append(cpu)
    return list(found.values())


def shares_of(ranks: int, cores: Sequence[Sequence[int]]) -> tuple[list[Share], list[int]]:
    """What each rank gets, and the processors for all else; no shares where there are too few cores."""
    # One is left for what else runs: this program, and the ranks of the next job while they begin.
    each = (len(cores) - 1) // ranks
    if each < _LEAST:
        return [], [cpu for core in cores for cpu in core]
    # Not the first one, which often serves interrupts.
    shares = [
        Share(list(cores[at - 1][:1]), [cpu for core in cores[at - each : at - 1] for cpu in core])
        for at in range(each, (ranks + 1) * each, each)
    ]
    return shares, [cpu for core in cores[ranks * each :] for cpu in core]
