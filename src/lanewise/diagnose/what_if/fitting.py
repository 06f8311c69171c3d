"""What of a program decides which fix fits: whether it is compiled, whether it replays graphs already."""

from __future__ import annotations

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest

__all__ = ["graphs_per_step", "host_matters", "mostly_compiled", "mostly_in_regions"]

# From this share of the step on, what the device waits for the host is worth speaking of.
_HOST_FROM = 0.20


def host_matters(facts: Facts) -> bool:
    """Whether the device waits for the host for a noticeable part of the step, whatever else binds it."""
    return facts.regime.name in {"host", "mixed"} or facts.regime.shares.get("host", 0.0) >= _HOST_FROM


def mostly_compiled(facts: Facts, calls: np.ndarray) -> bool:
    """Whether most of these launches stand in compiled regions."""
    mine = np.isin(facts.launches.call, calls)
    return bool(mine.any()) and float(np.mean(facts.regions.within[mine] >= 0)) > 0.5


def mostly_in_regions(facts: Facts, events: np.ndarray) -> bool:
    """Whether most of these host rows stand in compiled regions."""
    regions = facts.regions
    holders = np.concatenate((regions.region, regions.graph_call, regions.function))
    if len(holders) == 0 or len(events) == 0:
        return False
    around = nearest(facts.host.parent, mask_of(len(facts.trace), holders), events)
    return float(np.mean(around >= 0)) > 0.5


def graphs_per_step(facts: Facts) -> float:
    """How many graphs a steady step launches."""
    calls = facts.trace.links.calls("graph_launch")
    return float(np.count_nonzero(facts.in_steady_step[calls])) / facts.steady_count
