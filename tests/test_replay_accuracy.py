"""How predictions are judged: the order of the fixes of one program."""

from __future__ import annotations

from typing import Any

from benchmarks.replay.accuracy import order_of_fixes


def fix(said: float, left: tuple[float, float], program: str = "one") -> dict[str, Any]:
    return {"program": program, "said_left_us": said, "fixed_over_slow_p20_p80": list(left)}


def test_the_order_said_is_compared_with_the_one_measured():
    right = [fix(10, (0.1, 0.2)), fix(50, (0.5, 0.6)), fix(90, (0.8, 0.9))]
    two_swapped = [fix(50, (0.1, 0.2), "two"), fix(10, (0.5, 0.6), "two"), fix(90, (0.8, 0.9), "two")]
    order = order_of_fixes(right + two_swapped)
    assert order is not None
    assert order["tau"] == {"one": 1.0, "two": round(1 / 3, 4)}
    assert order["compared"] == 6


def test_what_the_measurement_cannot_tell_is_not_compared():
    assert order_of_fixes([fix(10, (0.1, 0.5)), fix(50, (0.4, 0.6))]) is None


def test_fixes_that_were_not_found_are_in_no_order():
    order = order_of_fixes([fix(100, (0.1, 0.2)), fix(100, (0.5, 0.6)), fix(50, (0.8, 0.9))])
    assert order is not None
    assert order["tau_of_all_compared"] == round((0 - 1 - 1) / 3, 4)


def test_pairs_have_one_fix_and_so_no_order():
    assert order_of_fixes([fix(10, (0.1, 0.2), ""), fix(50, (0.5, 0.6), "")]) is None
