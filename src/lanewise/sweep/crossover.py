"""Where a step stops being bound by what it costs whatever the batch, and begins to be bound by the work of the batch.

On a CPU both follow one another: a step takes `fixed + work(batch)`, and the crossover is the batch at which both are
equal, so that the step takes twice the fixed part (Hockney's half-performance length). With a device both go on side by
side: the crossover is the batch at which the device needs as long for a step as the host needs to launch it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lanewise.report.swept import Crossover

__all__ = ["crossover_of_steps", "crossover_with_device"]

_RISES = 1.5
"""The fixed part is told from a rise of this factor: noise of a few percent does not matter much in it."""
_GROWS = 1.15
"""A step that grows by less than this over all values does not grow."""


def crossover_of_steps(sizes: Sequence[float], steps: Sequence[float]) -> Crossover | None:
    """The crossover of `fixed + work`, from at least two batch sizes, ascending, and what a step takes with each, us."""
    if len(sizes) < 2:
        return None
    # No step takes less with more to do: that one did was another program's doing, or the clock's.
    steps = np.minimum.accumulate(np.asarray(steps)[::-1])[::-1].tolist()
    first, last = steps[0], steps[-1]
    if last < _GROWS * first:
        return Crossover("none", round(min(steps), 3))
    at = next((place for place, step in enumerate(steps) if step >= _RISES * first), len(steps) - 1)
    slope = (steps[at] - first) / (sizes[at] - sizes[0])
    fixed = first - slope * sizes[0]
    if fixed <= 0 or first >= 2 * fixed:
        return Crossover("below", round(max(0.0, fixed), 3))
    target = 2 * fixed
    for (size, step), (next_size, next_step) in pairwise(zip(sizes, steps, strict=True)):
        if step < target <= next_step:
            return Crossover(
                "within", round(fixed, 3), _rounded(size + (next_size - size) * (target - step) / (next_step - step))
            )
    slope = (last - steps[-2]) / (sizes[-1] - sizes[-2])
    beyond = sizes[-1] + (target - last) / slope if slope > 0 else None
    return Crossover("beyond", round(fixed, 3), None if beyond is None else _rounded(beyond))


def crossover_with_device(sizes: Sequence[float], host: Sequence[float], device: Sequence[float]) -> Crossover | None:
    """The crossover of what the host and what the device need for a step by themselves, us, at batch sizes, ascending."""
    if len(sizes) < 2 or min(host) <= 0 or min(device) <= 0:
        return None
    fixed = round(min(host), 3)
    apart = [math.log(mine / other) for mine, other in zip(device, host, strict=True)]
    if apart[0] >= 0:
        return Crossover("below", fixed)
    rows = list(zip((math.log(size) for size in sizes), apart, strict=True))
    for (size, gap), (next_size, next_gap) in pairwise(rows):
        if gap < 0 <= next_gap:
            return Crossover("within", fixed, _rounded(math.exp(size + (next_size - size) * -gap / (next_gap - gap))))
    (size, gap), (next_size, next_gap) = rows[-2:]
    slope = (next_gap - gap) / (next_size - size)
    at = _rounded(math.exp(next_size - next_gap / slope)) if slope > 0.1 else None
    return Crossover("beyond", fixed, at)


def _rounded(size: float) -> float:
    """To three digits: no crossover is known more closely."""
    return float(f"{size:.3g}")
