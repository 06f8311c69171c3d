"""SYN104: pinned copies that nothing runs beside."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    copy: float = 200, compute: float = 800, *, source: str = "pinned", overlapped: bool = False, steps: int = 5
) -> Trace:
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            if overlapped:
                with b.op("aten::mm"):
                    b.launch("gemm", duration=compute)
            with b.op("aten::to"), b.op("aten::copy_"):
                b.copy("HtoD", source=source, duration=copy, stream="9" if overlapped else "7")
            if not overlapped:
                with b.op("aten::mm"):
                    b.launch("gemm", duration=compute)
    return b.build()


def test_costs_the_exposed_copy() -> None:
    finding = found("SYN104", program())
    assert finding.gain_ns == pytest.approx(200_000, rel=0.01)
    assert title("SYN104", finding).startswith(
        "1 copy per step from or to pinned memory without overlapping computation: 200"
    )


def test_no_more_than_there_is_computation_to_hide_it_behind() -> None:
    assert found("SYN104", program(copy=900, compute=100)).gain_ns == pytest.approx(100_000, rel=0.01)


def test_a_copy_beside_a_kernel_is_clear() -> None:
    assert cleared("SYN104", program(overlapped=True))


def test_fires_from_five_percent_of_the_step() -> None:
    assert found("SYN104", program(copy=55, compute=945))
    assert cleared("SYN104", program(copy=45, compute=955))


def test_pageable_copies_are_another_rules() -> None:
    assert cleared("SYN104", program(source="pageable"))


def test_a_step_without_computation_has_nothing_to_hide_behind() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::copy_"):
            b.copy("HtoD", duration=500)
    assert "no computation" in skipped("SYN104", b.build())


def test_hiding_needs_five_percent_of_computation() -> None:
    assert found("SYN104", program(copy=940, compute=60))
    assert "no computation" in skipped("SYN104", program(copy=960, compute=40))
