from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(matrix: float, other: float) -> TraceBuilder:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::linear", head=0, tail=0), b.op("aten::addmm", head=matrix, tail=0):
            pass
        with b.op("aten::copy_", head=other, tail=0):
            pass
    return b


def test_matrix_work_on_the_cpu() -> None:
    result = found("MEA109", run(900, 100).build())
    assert "90 % of the operators' time is matrix work, most of it aten::addmm" in title("MEA109", result)


def test_the_threshold_is_one_half() -> None:
    cleared("MEA109", run(500, 500).build())
    found("MEA109", run(501, 499).build())


def test_a_launch_means_that_there_is_a_device() -> None:
    b = run(900, 100)
    b.call("cudaLaunchKernel")
    skipped("MEA109", b.build())


def test_no_operators_no_model() -> None:
    b = TraceBuilder()
    with b.step():
        pass
    skipped("MEA109", b.build())
