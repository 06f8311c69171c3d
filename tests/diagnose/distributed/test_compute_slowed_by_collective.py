"""DIS105: kernels that lose multiprocessors to a collective."""

from __future__ import annotations

import pytest

from lanewise.report.model import TextBlock
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    slowed: float = 180,
    plain: float = 100,
    *,
    stream: str = "20",
    pairs: int = 4,
    other_shape: bool = False,
    think: float = 0,
) -> Trace:
    """Each step runs the same kernel alone and beside a collective."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(pairs):
                for beside in (False, True):
                    rows = 128 if beside and other_shape else 64
                    if beside:
                        b.collective(duration=slowed, stream=stream, call=1, delay=2)
                    with b.op("aten::mm", head=0.1, tail=0.1, dims=[[rows, 64], [64, 64]], types=["float", "float"]):
                        b.launch("gemm", duration=slowed if beside else plain, call=1, delay=2)
                    b.synchronize()
            b.wait(think)
    return b.build()


def test_costs_the_excess() -> None:
    finding = found("DIS105", program())
    assert finding.gain_ns == pytest.approx(4 * 80_000)
    assert title("DIS105", finding).startswith(
        "Kernels run 1.8x slower alongside collectives, which hold some of the 132"
    )


def test_fires_from_a_fifth_slower() -> None:
    assert found("DIS105", program(121))
    assert cleared("DIS105", program(119))


def test_fires_from_two_percent_of_the_step() -> None:
    assert found("DIS105", program(121, think=3_100))  # 84 of 4,033 us
    assert cleared("DIS105", program(121, think=3_400))
    assert cleared("DIS105", program(121), share_from=0.12)
    assert found("DIS105", program(121), share_from=0.05)


def test_a_collective_in_line_has_nothing_beside_it() -> None:
    assert cleared("DIS105", program(stream="7"))


def test_other_work_is_no_comparison() -> None:
    assert cleared("DIS105", program(other_shape=True))


def test_a_rank_that_waits_is_sent_to_the_late_one() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.launch("gemm", duration=100)
            b.synchronize()
            b.collective(duration=4_000)
            b.launch("gemm", duration=300)
            b.wait(5_000)
    texts = [block.template for block in found("DIS105", b.build()).evidence if isinstance(block, TextBlock)]
    assert any("DIS102" in text for text in texts)


def test_without_collectives_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert skipped("DIS105", b.build())
