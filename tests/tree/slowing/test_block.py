"""What a usual step costs: one that was held up is left out, and what is called in some steps alone is not."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.tree.slowing.looks.block import Part, usual_step
from lanewise.tree.slowing.looks.since_last import Since


def part(host: list[float], calls: list[float], device: list[float] | None = None, steps: int = 1) -> Part:
    on_device = None if device is None else np.array(device)
    return Part(steps, Since(np.array(host), np.zeros(len(host)), np.array(calls), on_device))


def test_the_step_in_which_a_place_was_held_up_is_left_out_of_each_place() -> None:
    parts = [part([10, 50], [1, 2]), part([11, 21], [1, 2]), part([90, 20], [1, 2]), part([12, 19], [1, 2])]
    costs, calls = usual_step(parts, 2)
    assert costs["host"].tolist() == [11, 20]
    assert calls.tolist() == [1, 2]
    assert "device" not in costs


def test_what_is_called_in_one_step_of_four_counts_as_a_fourth() -> None:
    parts = [part([10, 0], [1, 0]), part([10, 0], [1, 0]), part([10, 0], [1, 0]), part([10, 80], [1, 3])]
    costs, calls = usual_step(parts, 2)
    assert costs["host"].tolist() == [10, 20]
    assert calls.tolist() == [1, 0.75]


def test_parts_of_several_steps_are_costs_of_one() -> None:
    costs, calls = usual_step([part([30], [6], steps=3), part([42], [6], steps=3)], 1)
    assert costs["host"].tolist() == [10]
    assert calls.tolist() == [2]
    assert usual_step([part([30], [6], steps=3)], 1)[0]["host"].tolist() == [10]


def test_records_of_the_device_come_late_and_all_count() -> None:
    parts = [part([1], [1]), part([1], [1], [0]), part([1], [1], [60]), part([1], [1], [20])]
    assert usual_step(parts, 1)[0]["device"].tolist() == [20]


@pytest.mark.parametrize("new", [1, 5])
def test_places_that_came_later_took_nothing_before(new: int) -> None:
    parts = [
        part([4], [1]),
        part([4], [1]),
        part([4, *[6.0] * new], [1, *[1.0] * new]),
        part([4, *[6.0] * new], [1, *[1.0] * new]),
    ]
    costs, _ = usual_step(parts, 1 + new)
    assert costs["host"].tolist() == [4, *[3] * new]
