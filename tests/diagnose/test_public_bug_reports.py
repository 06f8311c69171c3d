"""What a specialist would conclude from traces of the kinds that people attached to bug reports."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lanewise.diagnose.explain import explain
from lanewise.report.model import Finding, Report
from lanewise.trace.reader import read
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"


@cache
def report(name: str) -> Report:
    """The report on one of the small traces."""
    return explain(TRACES / f"{name}.json.gz")


def finding(of: Report, code: str) -> Finding | None:
    return next((f for f in of.findings if f.code == code), None)


def notes(of: Report) -> str:
    return " ".join(note.text for note in of.health)


# -- 1: blocked is not slow --------------------------------------------------------------------------------------------


def test_a_host_that_waits_for_a_collective_makes_the_run_communication_bound() -> None:
    of = report("f_sync_on_collective")
    assert of.regime.name == "communication-bound"
    assert of.regime.per_step == ["communication-bound"] * 4
    assert of.regime.shares["communication"] == pytest.approx(0.59, abs=0.02)
    assert of.regime.shares["host"] < 0.05


def test_a_launch_that_waits_for_another_stream_is_not_made_quicker_by_leaving_out_the_profiler() -> None:
    of = report("f_sync_on_collective")
    assert of.regime.step_us == pytest.approx(of.regime.recorded_step_us, rel=0.02)


@pytest.mark.parametrize("thread", ["100", "200"])
def test_only_the_thread_that_launches_next_is_blocked(thread: str) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=50)
            with b.op("nccl:all_reduce"):
                b.launch("ncclDevKernel_AllReduce", duration=2_000, stream="20")
            b.thread = thread
            begun = b.now
            b.call("cudaStreamSynchronize", duration=1_900)
            b.now, b.thread = begun, "100"
            for _ in range(38):  # the launching thread is at work all the time, or in the wait
                if thread == "100":
                    b.wait(50)
                else:
                    with b.op("aten::prepare", head=49, tail=1):
                        pass
    of = explain(b.build())
    assert of.regime.as_recorded == ("communication-bound" if thread == "100" else "host-bound")


def test_a_copy_that_waits_for_a_collective_moves_nothing_yet() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=100)
            with b.op("nccl:all_reduce"):
                b.launch("ncclDevKernel_AllReduce", duration=3_000, stream="7")
            with b.op("aten::item"):
                b.copy("DtoH", destination="pageable", size=4, duration=2, call=3_100)
    assert explain(b.build()).regime.name == "communication-bound"


def test_a_wait_for_nothing_that_was_recorded_is_not_the_hosts_work() -> None:
    of = report("f_wait_unexplained")
    assert of.regime.name == "undetermined"
    assert "the host sits in cudaDeviceSynchronize while nothing runs that was recorded" in of.verdict
    assert of.regime.shares["host"] < 0.01


def test_a_wait_that_returns_in_time_leaves_the_run_host_bound() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(5):
                with b.op("aten::mm", head=200):
                    b.launch("gemm", duration=50)
                b.synchronize()
    assert explain(b.build()).regime.name == "host-bound"


# -- 2: unusual steps --------------------------------------------------------------------------------------------------


def test_slow_steps_do_not_vanish_from_the_verdict() -> None:
    of = report("f_rare_slow_steps")
    assert of.verdict.startswith("3 of 11 steps took 31.5 ms instead of 1.53 ms, 89 % of the whole time")
    assert of.regime.name == "host-bound"
    assert of.regime.shares["host"] == pytest.approx(0.85, abs=0.02)


# -- 3: missing records ------------------------------------------------------------------------------------------------


def test_nothing_firm_is_said_where_most_of_the_work_is_missing() -> None:
    of = report("f_missing_records")
    assert of.regime.name == "undetermined"
    assert "75 % of the launches have no device record" in of.verdict
    assert [f.code for f in of.findings if f.kind == "problem"] == []
    assert "of the step)" not in " ".join(f.title for f in of.findings)


@pytest.mark.parametrize(("lost", "firm"), [(0, True), (1, False), (5, None)])
def test_where_some_records_are_missing_the_verdict_is_a_bound(lost: int, firm: bool | None) -> None:
    b = TraceBuilder()
    for step in range(6):
        with b.step():
            for _ in range(10):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=100)
            for _ in range(lost if step else 0):
                b.call("cudaLaunchKernel")
    of = explain(b.build())
    if firm is None:
        assert of.regime.name == "undetermined"
    else:
        assert of.regime.name == "device-bound"
        assert ("works at least that much" in of.verdict) is not firm


def test_a_host_function_on_a_stream_leaves_no_record_and_misses_none() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::mm"):
            b.launch("gemm", duration=100)
            b.call("cudaLaunchHostFunc")
    assert finding(explain(b.build()), "MEA108") is None


# -- 4: device rows that are not there ---------------------------------------------------------------------------------


def test_host_rows_of_a_gpu_program_did_not_run_on_the_cpu() -> None:
    of = report("f_host_rows_of_gpu_program")
    assert "What the GPU did was not recorded" in of.verdict
    assert "on the CPU" not in of.verdict + notes(of)


# -- 5, 8: work and launches that nothing links ------------------------------------------------------------------------


def test_unlinked_work_belongs_to_the_step_that_was_running() -> None:
    trace = read(TRACES / "f_unlinked_steps.json.gz", cache=False)
    assert trace.steps.of_event[trace.device_work].tolist() == [0, 1, 2, 3]
    of = report("f_unlinked_steps")
    assert of.regime.recorded_step_us == pytest.approx(1_110)


def test_unlinked_work_is_not_called_lost_and_not_counted_twice() -> None:
    of = report("f_unlinked_steps")
    told = finding(of, "MEA108")
    assert told is not None
    assert told.title.startswith("4 of 4 launches (100 %) and as many device ops are recorded")
    assert "too low" not in told.title
    assert "have no device record" not in notes(of)
    assert "nothing in the file links device work to its launches" in of.verdict


def test_idle_time_between_device_rows_alone_is_nobodys() -> None:
    of = report("f_device_rows_only")
    assert of.regime.name == "undetermined"
    assert of.regime.step_us == pytest.approx(950)
    assert of.regime.shares["compute"] == pytest.approx(500 / 950, abs=0.01)


# -- 6: durations that cannot be ---------------------------------------------------------------------------------------


def test_a_kernel_that_outlives_the_next_ones_is_cut_and_its_share_is_said() -> None:
    of = report("f_impossible_durations")
    assert of.regime.name == "host-bound"
    assert "7 device ops last beyond the end of the next one" in notes(of)
    assert "81 % of the device time" in notes(of)
    assert sum(row["total"] for row in of.tables["kernels"].rows) == pytest.approx(100 * 5_000, rel=0.01)


def test_what_may_overlap_is_left_alone() -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::mm"):
            b.launch("primary", duration=200)
        with b.op("aten::mm"):  # begins early, and ends after the one before it
            _, kernel = b.launch("secondary", duration=100)
        graph = b.launch(["a", "b", "c"], duration=50)
    b._events[kernel]["start"] -= 80_000
    for node in graph[1:]:  # branches of a graph
        b._events[node]["start"] = b._events[graph[1]]["start"]
    b._events[graph[1]]["duration"] = 500_000
    trace = b.build()
    assert len(trace.corrections.cut) == 0
    assert trace.start is trace["events"]["start"]


def test_a_lane_that_is_no_stream_is_not_cut() -> None:
    b = TraceBuilder()
    with b.step():
        kernels = [b.launch("k", duration=50)[1] for _ in range(10)]
    for at, kernel in enumerate(kernels):
        b._events[kernel]["start"], b._events[kernel]["duration"] = 100_000 + at * 1_000, 500_000 - at * 30_000
    assert len(b.build().corrections.cut) == 0


# -- 10: clocks that disagree ------------------------------------------------------------------------------------------


def clocked(
    offset_us: float, *, sync: str = "cudaDeviceSynchronize", busy: float = 5.0, steps: int = 6
) -> TraceBuilder:
    """Steps of five launches and a wait, with the device's clock late by so much."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step(tail=3):
            for _ in range(5):
                with b.op("aten::mm", head=12, tail=15):
                    b.launch("gemm", duration=busy)
            b.synchronize(sync)
    for event in b._events:
        if event["kind"] == Kind.KERNEL:
            event["start"] += round(offset_us * 1e3)
    return b


def test_a_late_clock_does_not_make_a_host_bound_run_wait_for_other_work() -> None:
    of = report("f_clock_100us_late")
    assert of.regime.name == "host-bound"
    assert of.regime.shares["dependency"] < 0.05
    assert "the device's clock is 109.0 us late (waits return before their work ends)" in notes(of)


@pytest.mark.parametrize("busy", [5.0, 200.0])
@pytest.mark.parametrize("offset", [-2_000.0, -300.0, 60.0, 100.0, 5_000.0])
def test_an_offset_is_found_to_a_few_microseconds(offset: float, busy: float) -> None:
    trace = clocked(offset, busy=busy).build()
    assert trace.corrections.clock_ns == pytest.approx(offset * 1e3, abs=10_000)
    true = clocked(0, busy=busy).build()
    assert true.corrections.clock_ns == 0
    assert explain(trace).regime.name == explain(true).regime.name


def test_nothing_that_proves_nothing_moves_a_clock() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=500)
            b.call("cudaStreamSynchronize", duration=5)  # of a stream that is idle
            with b.op("nccl:x"):
                b.launch("ncclDevKernel", stream="20")
    assert b.build().corrections.clock_ns == 0


# -- 9: private back ends ----------------------------------------------------------------------------------------------


def test_launches_of_a_private_back_end_are_launches() -> None:
    of = report("f_privateuse1_runtime")
    assert "12 of 12 device ops linked" in notes(of)
    assert finding(of, "MEA108") is None
    assert of.chain is not None


# -- 12: a gap that many short frames fill -----------------------------------------------------------------------------


def test_a_gap_is_named_after_the_function_whose_many_frames_fill_it() -> None:
    told = finding(report("f_bubble_of_many_frames"), "LAU110")
    assert told is not None
    assert told.title.endswith("the time goes into recv (socket.py:10).")
    assert "with_stack" not in str(told.evidence)


def test_a_gap_of_many_different_functions_asks_for_no_stacks_that_are_there() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=10)
            for at in range(40):
                with b.frame(f"work.py({at}): part{at}"):
                    b.wait(100)
    told = finding(explain(b.build()), "LAU110")
    assert told is not None
    assert "many short Python functions" in told.title
    assert "with_stack" not in str(told.evidence)


# -- 13: fills before a replay -----------------------------------------------------------------------------------------


def test_a_fill_before_a_replay_is_no_input_copy() -> None:
    assert finding(report("f_fill_before_graph"), "LAU107") is None


# -- 14: frames left open ----------------------------------------------------------------------------------------------


def test_a_frame_left_open_swallows_nothing() -> None:
    b = TraceBuilder()
    with b.frame("train.py(1): main"):
        left = b.frame("train.py(5): load")
        opened = left.__enter__()
        b.wait(50)
        left.__exit__(None, None, None)
        for _ in range(4):
            with b.step(), b.frame("train.py(9): step"), b.op("aten::mm"):
                b.launch("gemm", duration=10)
    b._events[opened]["duration"] = round(b.now * 1e3) - b._events[opened]["start"]
    trace = b.build()
    assert trace.corrections.closed == 1
    assert trace.duration[opened] == pytest.approx(51_000, abs=2_000)
    frames = trace.of(Kind.PYTHON)
    steps = frames[trace.name[frames] == trace.name_ids("train.py(9): step")[0]]
    holders = {trace.name_of(int(event)) for event in trace.nesting.parent[steps]}
    assert "train.py(5): load" not in holders
    assert "left open when recording ended" in notes(explain(trace))


def test_frames_that_are_open_at_the_end_stay_so() -> None:
    b = TraceBuilder()
    with b.frame("train.py(1): main"), b.frame("train.py(5): loop"):
        for _ in range(4):
            with b.step(), b.frame("train.py(9): step"), b.op("aten::mm"):
                b.launch("gemm", duration=10)
    trace = b.build()
    assert trace.corrections.closed == 0
    assert trace.duration is trace["events"]["duration"]


def test_a_range_left_open_ends_with_the_one_around_it() -> None:
    b = TraceBuilder()
    opened = -1
    for number in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=10)
            if number == 1:
                opened = b.slice("prepare", Kind.ANNOTATION, b.now, 0)
                b.wait(20)
            b.wait(5)
    b._events[opened]["duration"] = round(b.now * 1e3) - b._events[opened]["start"]
    trace = b.build()
    assert trace.corrections.closed == 1
    assert trace.duration[opened] == pytest.approx(26_000, abs=1_000)


# -- 16: asked for, not delivered --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "what"), [("profile_memory", "memory"), ("record_shapes", "shapes"), ("with_stack", "stacks")]
)
def test_what_was_asked_for_and_is_not_there_is_said(key: str, what: str) -> None:
    b = TraceBuilder(metadata={key: 1})
    with b.step(), b.op("aten::mm"):
        b.launch()
    assert f"{what}: requested when recording, but the trace holds none" in notes(explain(b.build()))
    b.metadata[key] = 0
    assert "asked for" not in notes(explain(b.build()))


# -- 18: damage that costs nothing -------------------------------------------------------------------------------------


def written(path: Path, tail: str, *, row: str = "") -> Path:
    """A trace of twenty rows with this text after its list of events."""
    rows = [
        json.dumps({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": n, "dur": 1}) for n in range(20)
    ]
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ",\n".join([*rows, *([row] if row else [])]) + "]" + tail)
    return path


@pytest.mark.parametrize(
    "tail",
    [
        ', "ERROR": ["[a.cpp:1] said "no" to 3"]}',
        ', "ERROR": ["[a.cpp:1] ok"], "WARNING": ["open]}',
        ', "ERROR": [nonsense here], "traceName": "x"}',
    ],
)
def test_an_unreadable_log_line_is_no_lost_row(tmp_path: Path, tail: str) -> None:
    trace = read(written(tmp_path / "t.json", tail), cache=False)
    assert len(trace) == 20
    assert not trace.reading.truncated
    of = explain(trace)
    told = finding(of, "MEA112")
    assert told is None or "too low" not in told.title
    assert told is None or "cut off" not in told.title


def test_a_missing_value_costs_its_value_and_not_its_row(tmp_path: Path) -> None:
    row = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 30, "dur": , "args": {"grid": }}'
    trace = read(written(tmp_path / "t.json", "}", row=row), cache=False)
    assert len(trace) == 21
    assert trace.reading.rows_lost == 0
    assert trace.reading.repaired["value is missing"].count == 2


# -- 19: integers beyond 63 bits ---------------------------------------------------------------------------------------


def test_integers_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    def row(ts: int, cat: str, args: dict[str, Any]) -> str:
        return json.dumps({"ph": "X", "cat": cat, "name": "x", "pid": 1, "tid": 1, "ts": ts, "dur": 1, "args": args})

    rows = [
        row(1, "cuda_runtime", {"correlation": 2**63 + 5}),
        row(3, "kernel", {"correlation": 2**63 + 5, "shared memory": 2**70}),
        row(5, "cpu_op", {"Sequence number": 2**64 - 1}),
    ]
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ",".join(rows) + "]}")
    trace = read(path, cache=False)
    assert trace.reading.repaired["integer too large for its field"].count == 3
    # Ids that wrap stay equal, so that the launch is still found.
    assert trace.links.launch.tolist() == [0]


# -- 20, 21 ------------------------------------------------------------------------------------------------------------


def test_a_list_without_properties_has_a_device() -> None:
    from lanewise.show.report.terminal import render
    from tests.support.text import shown

    assert "no GPU" not in shown(render(report("f_list_without_properties")))


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        ("Out-of-range = 12", True),
        ("12 events OUT OF RANGE", True),
        ("Record out_of_range: 3", True),
        ("exceeded max GPU Buffer count", True),
        ("CUPTI dropped 37 activity records", True),
        ("37 records were lost", True),
        ("Out-of-range = 0, blocklisted = 0", False),
        ("0 records dropped", False),
        ("Processed 12 events", False),
    ],
)
def test_log_lines_of_any_spelling(line: str, dropped: bool) -> None:
    b = TraceBuilder(metadata={"INFO": [line]})
    with b.step():
        for _ in range(100):
            with b.op("aten::mm"):
                b.launch()
    told = finding(explain(b.build()), "MEA108")
    assert (told is not None and "records were dropped" in told.title) is dropped
