from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(lookups: int, each: float, *, only_first: bool = False) -> TraceBuilder:
    """Four steps of 1000 us with cache lookups."""
    b = TraceBuilder()
    for step in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            for _ in range(lookups if step == 0 or not only_first else 0):
                with b.op("TorchDynamo Cache Lookup", head=each, tail=0):
                    pass
            b.wait(begin + 980 - b.now)
            with b.op("Torch-Compiled Region: 0/0", head=5, tail=0):
                b.launch("triton_poi_fused_add_0", call=5, delay=5, duration=5)
            b.wait(begin + 1000 - b.now)
    return b


def test_lookups_take_a_good_part_of_the_step() -> None:
    result = found("CMP104", run(5, 40).build())
    assert title("CMP104", result) == "Checking guards takes 200.0 us per step (20 %): 5 cache lookups of 40.0 us."
    assert result.gain_ns == pytest.approx(200_000)


def test_the_thresholds() -> None:
    cleared("CMP104", run(2, 50).build())  # 10 % of the step
    found("CMP104", run(2, 50.1).build())
    cleared("CMP104", run(20, 20).build())  # 40 %, but 20 us each
    found("CMP104", run(20, 20.1).build())


def test_the_first_step_may_look_long() -> None:
    assert "no cache lookups in steady steps" in cleared("CMP104", run(5, 100, only_first=True).build())


def test_nothing_compiled() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("CMP104", b.build())
