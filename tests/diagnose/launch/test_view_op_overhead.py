from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(views: int, *, copies: bool = False) -> TraceBuilder:
    """Four steps of 1000 us; each view takes 10 us, half of it in the `as_strided` inside."""
    b = TraceBuilder()
    for _ in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            for _ in range(views):
                with b.op("aten::reshape", head=5, tail=0), b.op("aten::as_strided", head=4, tail=1):
                    if copies:
                        b.launch(call=0.5)
            with b.op("aten::mm", head=5, tail=0):
                b.launch(call=5)
            b.wait(begin + 1000 - b.now)
    return b


def test_views_take_a_good_part_of_the_step() -> None:
    result = found("LAU105", run(21).build())
    assert title("LAU105", result) == (
        "42 operators per step only change how memory is described (210.0 us, 21 % of the host's time) and "
        "compute nothing."
    )
    assert result.gain_ns == pytest.approx(210_000)


def test_the_threshold_is_twenty_percent() -> None:
    cleared("LAU105", run(20).build())
    found("LAU105", run(21).build())


def test_a_view_that_copies_is_none() -> None:
    assert cleared("LAU105", run(30, copies=True).build()) == "operators that move no data are 0.0% of the host's time"


def test_device_rows_alone() -> None:
    b = TraceBuilder()
    b.kernel("gemm", 1, 5)
    skipped("LAU105", b.build())
