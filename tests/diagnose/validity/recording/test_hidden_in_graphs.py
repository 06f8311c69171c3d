from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(inside: float, outside: float) -> TraceBuilder:
    """One graph of three nodes and one kernel of its own per step."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("region"):
            b.launch(["a", "b", "c"], duration=inside / 3)
            b.launch("d", duration=outside)
    return b


def test_device_time_inside_graphs() -> None:
    result = found("MEA113", run(60, 40).build())
    assert title("MEA113", result).startswith(
        "60 % of device time runs inside replayed graphs (up to 3 nodes per launch)"
    )
    assert len(result.evidence[0].rows) == 3


def test_the_threshold_is_one_tenth() -> None:
    cleared("MEA113", run(9, 81).build())
    found("MEA113", run(9.3, 80).build())


def test_no_graph() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch()
    skipped("MEA113", b.build())
