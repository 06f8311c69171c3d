"""KER101: one kernel dominates."""

from __future__ import annotations

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def kernels(**durations: float) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for name, duration in durations.items():
                with b.op("aten::" + name):
                    b.launch(name, duration=duration)
    return b.build()


def test_names_kernel_operator_and_share() -> None:
    finding = found("KER101", kernels(mm=170, add=30))
    assert title("KER101", finding) == (
        "One kernel takes 85 % of the GPU's computing time: mm (170.0 us per step, from aten::mm)."
    )
    assert finding.gain_ns == 0


def test_fires_from_thirty_percent() -> None:
    assert found("KER101", kernels(a=300, b=250, c=250, d=200))
    assert cleared("KER101", kernels(a=260, b=250, c=250, d=240))


def test_communication_is_no_hotspot() -> None:
    finding = found("KER101", kernels(ncclDevKernel_AllReduce=1000, mm=100, add=50))
    assert "mm" in title("KER101", finding)


def test_one_name_and_grid_with_two_shapes_are_two_kernels() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for rows in (64, 128):
                for other in range(3):
                    with b.op("aten::mm", dims=[[rows, 64], [64, 64]], types=["float", "float"]):
                        b.launch("nvjet", duration=20 if rows == 128 else 2)
                    with b.op("aten::add"):
                        b.launch(f"add_{other}", duration=18)
    finding = found("KER101", b.build(), share_from=0.2)
    assert finding.values["total"].value == 60_000


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.copy("HtoD")
    assert skipped("KER101", b.build())
