from __future__ import annotations

from lanewise.diagnose.explain import explain
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(cpu: float, *, kernel: float = 20.0, rest: float = 1_000.0) -> TraceBuilder:
    """A product on the device, then one on the CPU that takes so long, then the rest of the step."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0):
            with b.op("aten::mm"):
                b.launch("gemm", duration=kernel)
            if cpu:
                with b.op("aten::addmm", head=cpu, tail=0):
                    pass
            with b.op("aten::sort", head=rest - cpu, tail=0):
                pass
            with b.op("aten::add"):
                b.launch("add")
    return b


def test_a_product_on_the_cpu_is_what_the_device_waits_for() -> None:
    result = found("LAU112", run(600).build())
    assert title("LAU112", result).startswith("The CPU computes while the GPU waits: 600.0 us per step")
    assert title("LAU112", result).endswith("most of it in aten::addmm.")
    assert 550_000 < result.gain_ns <= 600_000
    report = explain(run(600).build())
    assert next(f.code for f in report.findings if f.kind == "problem") == "LAU112"


def test_it_fires_from_five_percent_of_the_step() -> None:
    found("LAU112", run(80).build())
    assert "of the step" in cleared("LAU112", run(40).build())


def test_other_work_of_the_cpu_is_another_finding() -> None:
    cleared("LAU112", run(0).build())


def test_a_device_that_does_not_wait_loses_nothing() -> None:
    skipped("LAU112", run(600, kernel=20_000).build())


def test_a_program_without_a_device_is_another_finding() -> None:
    b = TraceBuilder(metadata={})
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.wait(500)
    skipped("LAU112", b.build())
