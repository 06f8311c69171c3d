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

_GROWS = 1.15
"""A step that grows by less than this over all values does not grow."""
_FURTHEST, _TRIED = 100.0, 1201
"""A crossover is looked for up to this factor beyond the values, at so many places."""


def crossover_of_steps(sizes: Sequence[float], steps: Sequence[float]) -> Crossover | None:
    """The crossover of `fixed + work`, from at least two batch sizes, ascending, and what a step takes with each, us.

    The two are those from which the steps differ least, in proportion and without squares: one recording that was disturbed
    moves nothing.
    """
    if len(sizes) < 2:
        return None
    # No step takes less with more to do: that one did was another program's doing, or the clock's.
    took = np.minimum.accumulate(np.asarray(steps, dtype=np.float64)[::-1])[::-1]
    size = np.asarray(sizes, dtype=np.float64)
    if took[-1] < _GROWS * took[0]:
        return Crossover("none", round(float(took[0]), 3))
    tried = np.geomspace(size[0] / _FURTHEST, size[-1] * _FURTHEST, _TRIED)
    apart = np.log(took)[None] - np.log(tried[:, None] + size[None])
    each = np.median(apart, axis=1)
    scatter = np.abs(apart - each[:, None]).mean(axis=1)
    best = int(np.argmin(scatter))
    at, fixed = float(tried[best]), float(tried[best] * math.exp(each[best]))
    where = "below" if at < size[0] else "beyond" if at > size[-1] else "within"
    known = 0 < best < _TRIED - 1
    return Crossover(where, round(fixed, 3), _rounded(at) if known else None, round(float(scatter[best]), 3))


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
