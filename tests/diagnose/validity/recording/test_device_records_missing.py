from __future__ import annotations

from lanewise.diagnose.explain import explain
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(launches: int, lost: int) -> TraceBuilder:
    b = TraceBuilder()
    with b.step():
        for at in range(launches):
            with b.op("aten::mm"):
                if at < lost:
                    b.call("cudaLaunchKernel")
                else:
                    b.launch()
    return b


def test_launches_without_device_work() -> None:
    result = found("MEA108", run(100, 3).build())
    assert "3 of 100 launches" in title("MEA108", result)


def test_the_threshold_is_two_percent() -> None:
    assert cleared("MEA108", run(100, 2).build()) == "2 of 100 launches do not match up"
    found("MEA108", run(99, 2).build())


def test_no_device_row_at_all() -> None:
    trace = run(5, 5).build()
    assert "not one kernel" in title("MEA108", found("MEA108", trace))
    report = explain(trace)
    assert report.verdict.startswith("What the GPU did is missing from this recording")
    assert "on the CPU" not in report.verdict + "".join(note.text for note in report.health)


def test_device_rows_without_a_host() -> None:
    b = TraceBuilder()
    for at in range(5):
        b.kernel("gemm", at * 10, 5)
    assert "5 device ops were recorded without a single launch" in title("MEA108", found("MEA108", b.build()))


def test_work_launched_before_the_recording_is_not_lost() -> None:
    b = TraceBuilder()
    for at in range(20):
        b.kernel("earlier", at, 1)
    b.wait(100)
    with b.step():
        for _ in range(20):
            with b.op("aten::mm"):
                b.launch()
    cleared("MEA108", b.build())


def test_a_graph_launch_owns_many_device_ops_and_a_captured_one_none() -> None:
    b = TraceBuilder()
    with b.step():
        b.call("cudaStreamBeginCapture")
        for _ in range(10):
            b.call("cudaLaunchKernel")
        b.call("cudaStreamEndCapture")
        b.wait(1)
        b.launch(["a", "b", "c"])
    cleared("MEA108", b.build())


def test_the_profiler_says_that_it_dropped_records() -> None:
    b = run(100, 0)
    b.metadata["WARNING"] = ["Exceeded max GPU buffer count (100 > 100)"]
    assert "records were dropped" in title("MEA108", found("MEA108", b.build()))


def test_a_cpu_run_has_no_records_to_lose() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    skipped("MEA108", b.build())
