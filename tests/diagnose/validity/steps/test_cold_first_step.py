from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def steps(first: float, *rest: float) -> TraceBuilder:
    """Steps whose host part takes the given microseconds."""
    b = TraceBuilder()
    for duration in (first, *rest):
        with b.step(head=0, tail=0), b.op("aten::mm", head=duration - 15, tail=10):
            b.launch("gemm", call=5)
    return b


def test_a_slow_first_step_is_named_without_a_cause_that_no_record_shows() -> None:
    result = found("MEA101", steps(300, 100, 100).build())
    assert title("MEA101", result).startswith(
        "The first recorded step took 300.0 us on the host, 3.0x the others' 100.0 us."
    )
    assert "not called a cold start" in title("MEA101", result)
    assert (result.gain_ns, list(result.steps)) == (0, [0])


def test_the_gap_table_shows_where_the_time_before_the_first_launch_went() -> None:
    gaps = found("MEA101", steps(300, 100, 100).build()).evidence[-1]
    assert [(row["number"], row["before_launch"], row["annotation_start"]) for row in gaps.rows] == [
        (2, 285_000, -1),
        (3, 85_000, -1),
        (4, 85_000, -1),
    ]


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ("Lazy Function Loading", "loading kernels and modules"),
        ("Runtime Triggered Module Loading", "loading kernels"),
        ("Driver Compiler", "the driver's compiler"),
    ],
)
def test_a_record_in_the_first_step_is_its_cause(row: str, label: str) -> None:
    b = steps(300, 100, 100)
    b.overhead(row, 50, 120)
    assert f": {label}" in title("MEA101", found("MEA101", b.build()))
    assert "120.0 us of it" in title("MEA101", found("MEA101", b.build()))


def test_an_allocation_call_is_a_cause() -> None:
    b = steps(300, 100, 100)
    b.slice("cudaMalloc", Kind.RUNTIME, 20, 150)
    assert "allocating device memory took 150.0 us" in title("MEA101", found("MEA101", b.build()))


def test_a_record_that_explains_too_little_is_no_cause() -> None:
    b = steps(300, 100, 100)
    b.overhead("Lazy Function Loading", 50, 19)
    assert "not called a cold start" in title("MEA101", found("MEA101", b.build()))
    b = steps(300, 100, 100)
    b.overhead("Lazy Function Loading", 50, 20)
    assert "loading kernels" in title("MEA101", found("MEA101", b.build()))


def test_a_record_that_every_step_has_is_no_cause() -> None:
    b = steps(300, 100, 100)
    for at in (50, 310, 410):
        b.overhead("Lazy Function Loading", at, 80)
    assert "not called a cold start" in title("MEA101", found("MEA101", b.build()))


def test_the_threshold_is_one_and_a_half() -> None:
    assert cleared("MEA101", steps(150, 100, 100).build()) == "the first step took 1.50x the others"
    found("MEA101", steps(151, 100, 100).build())


def test_two_steps_leave_nothing_to_compare_with() -> None:
    assert "2 recorded" in needed("MEA101", steps(300, 100).build())


def test_without_step_marks_there_is_no_first_step() -> None:
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch()
    skipped("MEA101", b.build())
