"""What a usual step of a block costs, by context.

On a machine that others use, too, one step in some is held up, and it hits a few places each time: the mean of four steps
is moved in every block, the mean of the three in which a place was quickest seldom. That is only asked of a place that
was called equally often in all of them: what is called in every fourth step is in the longest of four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lanewise.tree.slowing.looks.growing_forest import padded
from lanewise.tree.slowing.looks.since_last import Since

__all__ = ["Part", "usual_step"]


class Part(NamedTuple):
    """What came within so many steps, one as a rule."""

    steps: int
    since: Since


def usual_step(parts: Sequence[Part], nodes: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Of the parts of a block.

    Args:
        parts: at least one. nodes: how many there are by now.

    Returns:
        Cost per step of each node by itself, ns, of the host and, where one is looked at, the device, whose records come
        late, so that only their mean says something; and mean calls per step. Shape (nodes,) each.
    """
    steps = np.array([part.steps for part in parts], dtype=float)
    calls = np.stack([padded(part.since.calls, nodes) for part in parts])
    whole = np.stack([padded(part.since.host, nodes) for part in parts])
    host, mean_calls = whole.sum(axis=0) / steps.sum(), calls.sum(axis=0) / steps.sum()
    if len(parts) > 1:
        each = whole / steps[:, None]
        quickest = (each.sum(axis=0) - each.max(axis=0)) / (len(parts) - 1)
        host = np.where(np.ptp(calls / steps[:, None], axis=0) == 0, quickest, host)
    costs = {"host": host}
    if device := [padded(part.since.device, nodes) for part in parts if part.since.device is not None]:
        costs["device"] = np.sum(device, axis=0) / steps.sum()
    return costs, mean_calls
