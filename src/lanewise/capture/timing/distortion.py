"""What profiling did to the step time: profiled over un-profiled, with an interval."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lanewise.capture.timing.clock import quantile

__all__ = ["ratio_interval"]

_RESAMPLES = 1000
_LEAST_SAMPLES = 5


def ratio_interval(profiled: Sequence[float], unprofiled: Sequence[float]) -> tuple[float, float] | None:
    """95 % percentile-bootstrap interval of the ratio of medians; None with fewer than five samples on a side.

    The seed is fixed, so that the same samples always print the same interval.
    """
    if min(len(profiled), len(unprofiled)) < _LEAST_SAMPLES:
        return None
    draw = random.Random(0)
    ratios = sorted(
        quantile(draw.choices(profiled, k=len(profiled)), 0.5)
        / max(quantile(draw.choices(unprofiled, k=len(unprofiled)), 0.5), 1e-9)
        for _ in range(_RESAMPLES)
    )
    return quantile(ratios, 0.025), quantile(ratios, 0.975)
