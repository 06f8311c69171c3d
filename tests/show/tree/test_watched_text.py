"""How a tree was collected, in words."""

from __future__ import annotations

import pytest

from lanewise.tree.watching.watched import Distortion, Watched
from lanewise.tree.watching.watched_text import watched_lines


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.05, 1.4, "a watched step takes 1.200x the time of another (95 % interval 1.050 to 1.400"),
        (0.95, 1.1, "a watched step takes 1.200x the time of another (95 % interval 0.950 to 1.100"),
        (0.7, 1.6, "steps differ too much to tell what watching costs (95 % interval 0.700 to 1.600"),
        (1.1, 2.4, "a watched step takes 1.10x to 2.40x the time of another (95 % interval 1.100 to 2.400"),
    ],
)
def test_what_watching_costs_or_that_it_cannot_be_told(low: float, high: float, said: str) -> None:
    lines = watched_lines(Watched(distortion=Distortion(1.2, low, high, 20, 20)))
    assert lines[1].startswith(said)
    assert lines[1].endswith("20 and 20 steps of this run)")


def test_noticing_steps_is_said_where_steps_are_tiny() -> None:
    tiny = Distortion(2.2, 2.1, 2.3, 20, 20, step_ns=6_000, notice_ns=3_900)
    lines = watched_lines(Watched(distortion=tiny))
    assert lines[1].startswith("a watched step takes 2.200x the time of a step of the program alone (95 %")
    assert lines[2] == "3.9 us of every step, watched or not, go to noticing that it began: 1.65x a step of 6.0 us"
    long = Distortion(1.2, 1.1, 1.3, 20, 20, step_ns=900_000, notice_ns=3_900)
    assert len(watched_lines(Watched(distortion=long))) == 2


def test_losses_and_reasons_are_said() -> None:
    lines = watched_lines(Watched(losses={"kernels_missing": 1200}, reason="no compiler", device="not collected: held"))
    assert any(line.startswith("lost: 1,200 kernels without a record") for line in lines)
    assert "device work was not collected: held" in lines
    assert "not the native collector: no compiler" in lines
