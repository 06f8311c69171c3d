"""DIS103: many small messages."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def program(count: int = 20, *, elements: int = 1000, compute: float = 100, arguments: bool = True) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(count):
                if arguments:
                    b.collective(elements=elements, duration=5)
                else:
                    b.launch("ncclDevKernel_AllReduce", duration=5, stream="20")
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            b.synchronize()
    return b.build()


def test_all_but_the_needed_buckets_can_go() -> None:
    finding = found("DIS103", program(compute=1))
    # Each costs 9 us: two operators of 2 us around a call of 5 us; 80 kB fit in one bucket.
    assert finding.gain_ns == pytest.approx(19 * 9_000, rel=0.12)
    assert title("DIS103", finding).startswith("20 collectives per step of less than 1.05 MB each (80.0 kB in all)")


def test_several_buckets_stay_where_the_data_needs_them() -> None:
    several, one = found("DIS103", program(200, elements=200_000)), found("DIS103", program(200))
    assert 0 < several.gain_ns < one.gain_ns


def test_fires_from_ten_small_ones() -> None:
    assert found("DIS103", program(10))
    assert cleared("DIS103", program(9))


def test_fires_below_one_mebibyte() -> None:
    assert found("DIS103", program(elements=(1 << 18) - 1))
    assert cleared("DIS103", program(elements=1 << 18))


def test_fires_from_three_percent_of_the_step() -> None:
    # 180 us of host time in a step of about 5,900 and of 6,900 us.
    assert found("DIS103", program(compute=5_700))
    assert cleared("DIS103", program(compute=6_700))


def test_without_arguments_it_says_what_to_record() -> None:
    assert "sizes of the collectives" in needed("DIS103", program(arguments=False))


def test_without_collectives_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert skipped("DIS103", b.build())
