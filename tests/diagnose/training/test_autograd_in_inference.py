from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(*sequences: tuple[int, ...], backward: bool = False) -> TraceBuilder:
    """One step per argument, whose operators carry the given sequence numbers."""
    b = TraceBuilder()
    for numbers in sequences:
        with b.step():
            for number in numbers:
                with b.op("aten::mul", sequence=number, forward_thread=0 if number >= 0 else -1):
                    b.launch()
            if backward:
                with b.op("autograd::engine::evaluate_function: MulBackward0", sequence=numbers[0], forward_thread=1):
                    b.launch()
    return b


def test_numbers_that_advance_without_a_backward() -> None:
    result = found("OPT104", run((5, 6, 7), (7, 8, 9), (9, 10, 11)).build())
    assert title("OPT104", result) == (
        "2 operators per step are recorded for a backward pass that never runs: their inputs stay in memory."
    )


def test_three_tenths_of_the_operators_host_time_are_to_gain() -> None:
    b = TraceBuilder()
    for step in range(4):
        with b.step(head=0, tail=0):
            for i in range(20):
                with b.op("aten::mul", sequence=20 * step + i, forward_thread=0, head=25, tail=0):
                    b.launch(call=5, duration=2)
    assert found("OPT104", b.build()).gain_ns == pytest.approx(0.3 * 20 * 30_000, rel=0.1)


def test_a_constant_number_means_that_nothing_is_recorded() -> None:
    assert "does not advance" in cleared("OPT104", run((5, 5), (5, 5), (5, 5)).build())


def test_every_step_must_record() -> None:
    cleared("OPT104", run((5, 6), (7, 8), (8, 8)).build())


def test_without_grad_mode_there_are_no_numbers() -> None:
    assert "no operator" in cleared("OPT104", run((-1, -1), (-1, -1)).build())


def test_training_needs_its_graph() -> None:
    skipped("OPT104", run((5, 6), (7, 8), backward=True).build())


def test_no_operators() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch(["a", "b"])
    skipped("OPT104", b.build())
