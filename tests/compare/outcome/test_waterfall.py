"""The waterfall sums exactly, whatever the classes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lanewise.compare.model import WaterfallItem
from lanewise.compare.outcome.waterfall import whole_parts
from lanewise.measure.regime.time_classes import CLASSES
from tests.compare.programs import LAYER, PROGRAM, change_all, compare_traces, delete, record

TIMES = st.floats(0, 1e9, allow_nan=False)


@given(st.fixed_dictionaries(dict.fromkeys(CLASSES, TIMES)), TIMES)
def test_parts_sum_to_the_step(classes: dict[str, float], step: float) -> None:
    assert sum(whole_parts(classes, step).values()) == round(step)


@given(st.fixed_dictionaries(dict.fromkeys(CLASSES, TIMES)))
def test_rounding_makes_no_part_of_its_own(classes: dict[str, float]) -> None:
    assert "rest" not in whole_parts(classes, sum(classes.values()))


def exact(item: WaterfallItem) -> bool:
    return not item.parts or sum(part.ns for part in item.parts) == item.ns


def test_it_sums_at_every_level() -> None:
    slower = change_all(delete(PROGRAM, 4, 9, 13), 5, us=40.0)
    water = compare_traces(record(PROGRAM, 1), record(slower, 2, host_us=120.0)).differences[0].waterfall
    assert water.a_ns + sum(item.ns for item in water.items) == water.b_ns
    assert all(exact(item) for item in water.items)
    assert any(item.parts for item in water.items)
    assert water.b_ns > water.a_ns


def test_the_largest_change_is_named_first() -> None:
    slower = change_all(PROGRAM, 6, us=90.0)
    water = compare_traces(record(PROGRAM, 1), record(slower, 2)).differences[0].waterfall
    compute = next(item for item in water.items if item.key == "compute")
    assert compute.parts[0].label.startswith("pytorch_flash::flash_fwd_kernel")
    assert abs(compute.parts[0].ns - 4 * 60_000) < 4_000
    assert LAYER[4].us == 30.0
