"""Facts of several ranks of one job, for measures and rules that need the events themselves."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.errors import UsageError
from lanewise.measure.facts import Facts

__all__ = ["job_of"]


def job_of(ranks: Sequence[Facts]) -> Facts:
    """The facts of the first rank with the others as its peers.

    Raises:
        UsageError: two files hold the same recording, or no collective is common to all of them.
    """
    seen: dict[str, str] = {}
    for facts in ranks:
        reading = facts.trace.reading
        if reading.digest and reading.digest in seen:
            raise UsageError(
                f"{seen[reading.digest]} and {reading.source} hold the same recording: give each rank once"
            )
        seen[reading.digest] = reading.source
    first, *others = ranks
    job = Facts(first.trace, unprofiled_ns=first.unprofiled_ns, peers=others)
    if job.ranks is None:
        raise UsageError(
            "these traces have no collective in common: they are no ranks of one job, or were recorded over other steps"
        )
    return job
