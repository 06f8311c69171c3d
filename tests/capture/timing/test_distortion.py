from __future__ import annotations

import random

from lanewise.capture.timing.distortion import ratio_interval


def test_the_interval_covers_the_true_ratio_and_narrows_with_samples() -> None:
    draw = random.Random(7)

    def interval(count: int) -> tuple[float, float]:
        found = ratio_interval([draw.gauss(190, 10) for _ in range(count)], [draw.gauss(100, 5) for _ in range(count)])
        assert found is not None
        return found

    low, high = interval(10)
    assert low < 1.9 < high
    narrow_low, narrow_high = interval(200)
    assert narrow_low < 1.9 < narrow_high
    assert narrow_high - narrow_low < high - low


def test_four_samples_are_too_few() -> None:
    assert ratio_interval([1.0] * 4, [1.0] * 40) is None
    assert ratio_interval([1.0] * 40, [1.0] * 4) is None


def test_the_same_samples_print_the_same_interval() -> None:
    samples = [100.0, 110.0, 90.0, 105.0, 95.0, 102.0]
    assert ratio_interval(samples, samples) == ratio_interval(samples, samples)
