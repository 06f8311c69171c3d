"""The step as a graph: replayed as recorded, without the profiler, with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lanewise.diagnose.what_if.remedies import batch, fuse, remove, replayed
from lanewise.measure.facts import Facts
from lanewise.replay.apply import apply
from lanewise.replay.change import Change, add, cheaper, cut, drop_wait, move, one_launch, overlap, shorten
from lanewise.replay.simulate import Replayed, simulate
from lanewise.replay.undistort import scaled_to, slower, undistort
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDINGS = sorted((DATA / "h100").glob("*.json.gz")) + sorted((DATA / "twins").glob("*.json.gz"))[::4]


def step_us(facts: Facts, change: Change | None = None) -> float:
    graph = facts.graph if change is None else apply(facts.graph, change)
    return simulate(graph).step_ns / 1e3


def loop(*, kernel: float = 5, operators: int = 4, host: float = 20, item: bool = False, steps: int = 6) -> Facts:
    """Steps of operators that take `host` us each and launch a kernel; with `item` the step reads a value at its end."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step(head=0, tail=0):
            for _ in range(operators):
                with b.op("aten::add", head=host - 5, tail=0):
                    b.launch("add", call=5, duration=kernel)
            if item:
                with b.op("aten::item"):
                    b.copy("DtoH", size=8, duration=1)
                    b.synchronize()
    return Facts(b.build())


def operators(facts: Facts, name: str = "aten::add") -> np.ndarray:
    rows = facts.trace.of(Kind.OPERATOR)
    return rows[np.isin(facts.trace.name[rows], facts.trace.name_ids(name))]


# -- what was recorded ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [p for p in RECORDINGS if "truth" not in p.name], ids=lambda p: p.name[:-8])
def test_replaying_a_recording_unchanged_gives_the_recorded_time(path: Path) -> None:
    graph = Facts(read(path, cache=False)).graph
    replay = simulate(graph, rounds=1)
    assert replay.end.max() == pytest.approx(graph.recorded_ns, rel=0.01)


# With waits for streams, for other streams, and for work of the round before.
WAITING = [
    DATA / "ranks2" / "pipeline_sleep_rank1_6ms_rank0.json.gz",
    DATA / "twins" / "loader_stall-good.json.gz",
    DATA / "twins" / "item_loop-bad.json.gz",
]


@pytest.mark.parametrize("path", [*RECORDINGS[:12:3], *WAITING], ids=lambda p: p.name[:-8])
def test_nodes_in_groups_end_when_they_do_one_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Facts(read(path, cache=False)).graph
    for graph in (recorded, slower(recorded, 0.3), slower(undistort(recorded), 3.0)):
        replays: list[Replayed] = []
        for worth in (0, len(graph) + 1):
            monkeypatch.setattr("lanewise.replay.simulate._WORTH", worth)
            replays.append(simulate(graph, rounds=3))
        assert np.allclose(replays[0].end, replays[1].end, rtol=0, atol=1e-3)
        assert replays[0].step_ns == pytest.approx(replays[1].step_ns, abs=1e-3)


def test_every_node_comes_after_what_it_waits_for() -> None:
    graph = Facts(read(DATA / "h100" / "03_mnist_train_stack.json.gz", cache=False)).graph
    assert (graph.dependency < np.arange(len(graph))).all()
    assert (graph.second < np.arange(len(graph))).all()


def test_a_step_is_what_its_bottleneck_takes() -> None:
    assert step_us(loop(host=20, kernel=5)) == pytest.approx(80, rel=0.02)
    # The device needs longer than the host: its kernels follow each other.
    assert step_us(loop(host=20, kernel=50)) == pytest.approx(4 * 50, rel=0.05)


def test_a_wait_beside_device_work_that_nothing_launched_is_replayed_as_recorded() -> None:
    """Launches are not recorded where only the device was profiled, or a trace is cut."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0), b.op("aten::item", head=10, tail=0):
            b.kernel("mm", b.now, 100)
            b.synchronize()
    assert step_us(Facts(b.build())) == pytest.approx(111, rel=0.1)


def test_how_far_the_host_runs_ahead_at_first_does_not_count() -> None:
    """Two steps are recorded, and only in the first one does the queue fill."""
    assert step_us(loop(host=20, kernel=50, steps=3)) == pytest.approx(4 * 50, rel=0.05)


def test_without_device_work_a_step_is_the_hosts() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0), b.op("aten::mm", head=100):
            pass
    assert step_us(Facts(b.build())) == pytest.approx(100, rel=0.05)


def test_an_empty_trace_has_no_step() -> None:
    facts = Facts(TraceBuilder().build())
    assert simulate(facts.graph).step_ns == 0
    assert facts.unprofiled.class_ns == {}


# -- without the profiler -------------------------------------------------------------------------------------------------


def test_recorded_rows_are_taken_off_the_host_and_nothing_off_the_device() -> None:
    facts = loop(host=20, kernel=5)
    graph = undistort(facts.graph)
    assert (graph.gap[graph.on_host] <= facts.graph.gap[graph.on_host]).all()
    assert np.array_equal(graph.duration, facts.graph.duration)
    assert simulate(graph).step_ns < simulate(facts.graph).step_ns
    device_bound = loop(host=20, kernel=50)
    assert simulate(undistort(device_bound.graph)).step_ns == pytest.approx(
        simulate(device_bound.graph).step_ns, rel=0.05
    )


def test_the_end_of_a_step_is_mostly_the_profilers() -> None:
    def left_us(end: float) -> float:
        b = TraceBuilder()
        for _ in range(6):
            with b.step(head=0, tail=end), b.op("aten::add", head=100):
                b.launch("add", call=5, duration=1)
        return simulate(undistort(Facts(b.build()).graph)).step_ns / 1e3

    assert left_us(18) - left_us(2) < 0.25 * 16


def test_a_slow_step_among_quick_ones_does_not_count() -> None:
    def program(slow: float) -> Trace:
        b = TraceBuilder()
        for number in range(8):
            with b.step(head=0, tail=0), b.op("aten::add", head=slow if number == 4 else 100):
                b.launch("add", duration=5)
        return b.build()

    usual, disturbed = Facts(program(100)), Facts(program(1_000))
    assert simulate(undistort(disturbed.graph)).step_ns == pytest.approx(simulate(undistort(usual.graph)).step_ns)


def thinking(us: float, *, other_thread: bool = False, frames: int = 0) -> Facts:
    """Steps of four short operators, with so much Python behind each; `frames` calls of a function in it are recorded."""
    b = TraceBuilder()
    main, other = b.thread, "200" if other_thread else b.thread
    for _ in range(6):
        with b.step(head=0, tail=0):
            for number in range(4):
                b.thread = other if number % 2 else main
                with b.op("aten::add", head=10, tail=0):
                    b.launch("add", call=5, duration=1)
                for _ in range(frames):
                    with b.frame("train.py(1): f"):
                        b.wait(us / frames)
                if not frames:
                    b.wait(us)
            b.thread = main
    return Facts(b.build())


def test_code_in_which_nothing_is_recorded_takes_as_long_without_the_profiler() -> None:
    assert simulate(undistort(thinking(500).graph)).step_ns / 1e3 == pytest.approx(4 * 500, rel=0.05)
    assert simulate(undistort(thinking(500, frames=1).graph)).step_ns / 1e3 == pytest.approx(4 * 500, rel=0.1)
    # Not what is full of rows, and not the time in which one thread wakes another.
    full = thinking(500, frames=250)
    assert simulate(undistort(full.graph)).step_ns / 1e3 < step_us(full) - 4 * 150
    assert thinking(500).graph.unrecorded[0].total / 1e3 > 24 * 400
    assert thinking(500, other_thread=True).graph.unrecorded[0].total == 0


def test_operators_that_go_leave_the_code_between_them() -> None:
    facts = thinking(500)
    graph = undistort(facts.graph)
    gone = (simulate(graph).step_ns - simulate(apply(graph, remove(facts, operators(facts)))).step_ns) / 1e3
    # 20 us of Python before each may be its call; half of it and of the operator is the cost of recording.
    assert 4 * 10 < gone < 4 * (10 + 15)


def paused(us: float, *, cold: float) -> Facts:
    """Steps of six operators behind a pause, of which the first two take `cold` us more."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0):
            b.wait(us)
            for number in range(6):
                with b.op("aten::add", head=20 + (cold if number < 2 else 0), tail=0):
                    b.launch("add", call=5, duration=1)
    return Facts(b.build())


def without_pauses_us(facts: Facts, us: float) -> float:
    start = facts.trace.steps.start
    return step_us(facts, cut(start, start + round(us * 1e3)))


def test_code_behind_a_long_pause_is_no_longer_cold_when_that_goes() -> None:
    assert without_pauses_us(paused(2_000, cold=200), 2_000) == pytest.approx(6 * 25, rel=0.05)
    # What follows a short one is slow for a reason of its own.
    assert without_pauses_us(paused(100, cold=200), 100) == pytest.approx(6 * 25 + 400, rel=0.05)
    # And where the pause stays, the code behind it stays as it is.
    assert step_us(paused(2_000, cold=200)) == pytest.approx(2_000 + 6 * 25 + 400, rel=0.05)


def test_what_was_timed_is_the_step() -> None:
    facts = loop(host=20, kernel=5)
    for us in (30, 60, 200):
        assert simulate(scaled_to(undistort(facts.graph), us * 1e3)).step_ns == pytest.approx(us * 1e3, rel=0.03)
    timed = Facts(facts.trace, unprofiled_ns=60_000).unprofiled
    assert (timed.step_ns, timed.low_ns, timed.high_ns, timed.timed) == (60_000, 60_000, 60_000, True)
    assert sum(timed.class_ns.values()) == pytest.approx(60_000)


def test_no_host_work_explains_a_time_below_the_devices() -> None:
    graph = undistort(loop(host=20, kernel=50).graph)
    assert scaled_to(graph, 100_000) is graph
    host_bound = undistort(loop(host=200, kernel=50).graph)
    assert simulate(scaled_to(host_bound, 100_000)).step_ns == pytest.approx(4 * 50_000, rel=0.1)


def test_a_device_that_ran_slower_is_not_taken_for_a_slow_host() -> None:
    graph = undistort(loop(host=20, kernel=50).graph)
    slow = scaled_to(graph, 206_000)
    assert simulate(slow).step_ns == pytest.approx(206_000, rel=0.01)
    kernels = np.flatnonzero(~graph.on_host)
    assert simulate(replace(slow, duration=slow.duration / 2)).step_ns == pytest.approx(103_000, rel=0.02)
    assert (slow.duration[kernels] > graph.duration[kernels]).all()


def test_the_computed_step_lies_in_its_interval() -> None:
    step = loop(host=20, kernel=5).unprofiled
    assert step.low_ns < step.step_ns < step.high_ns <= max(step.recorded_ns, 1.03 * step.step_ns)
    assert step.distortion > 1
    assert sum(step.class_ns.values()) == pytest.approx(step.step_ns)


# -- with one thing changed -----------------------------------------------------------------------------------------------


def test_nothing_changed_changes_nothing() -> None:
    facts = loop(item=True)
    assert step_us(facts, Change()) == step_us(facts)


def test_an_operator_goes_with_what_it_launches() -> None:
    facts = loop(host=20, kernel=5)
    assert step_us(facts, remove(facts, operators(facts)[::2])) == pytest.approx(40, rel=0.05)
    device_bound = loop(host=20, kernel=50)
    assert step_us(device_bound, remove(device_bound, operators(device_bound)[::2])) == pytest.approx(100, rel=0.05)


def test_device_work_goes_with_the_operators_that_launch_nothing_else() -> None:
    facts = loop(host=20, kernel=5)
    assert step_us(facts, remove(facts, facts.trace.device_work[::2])) == pytest.approx(40, rel=0.05)


def test_two_changes_that_take_the_same_away_count_once() -> None:
    facts = loop(host=20)
    half = remove(facts, operators(facts)[::2])
    assert step_us(facts, half + half) == step_us(facts, half)
    assert step_us(facts, half + cheaper(operators(facts), 0.5)) == pytest.approx(20, rel=0.1)


def test_shorter_kernels_help_only_behind_a_quick_host() -> None:
    host, device = loop(host=20, kernel=15), loop(host=20, kernel=50)
    assert step_us(host, shorten(host.trace.device_work, 1_000)) == pytest.approx(step_us(host), rel=0.02)
    assert step_us(device, shorten(device.trace.device_work, 30_000)) == pytest.approx(120, rel=0.05)


def test_a_wait_couples_host_and_device_until_it_is_dropped() -> None:
    facts = loop(host=20, kernel=18, item=True)
    waits = np.flatnonzero(facts.host.waiting)
    assert step_us(facts, drop_wait(waits)) < step_us(facts)
    assert step_us(facts, remove(facts, operators(facts, "aten::item"))) <= step_us(facts, drop_wait(waits))


def test_a_call_of_the_program_goes_with_the_python_that_makes_it() -> None:
    def program(waits: int, *, python: float = 8, outside: bool = True) -> Facts:
        b = TraceBuilder()
        for _ in range(6):
            with b.step(head=0, tail=0):
                for number in range(10):
                    with b.op("aten::add", head=30):
                        b.launch("add", duration=2)
                        if number < waits and not outside:
                            b.wait(python)
                            b.synchronize("cudaDeviceSynchronize")
                    if number < waits and outside:
                        b.wait(python)
                        b.synchronize("cudaDeviceSynchronize")
        return Facts(b.build())

    def without(facts: Facts) -> float:
        return step_us(facts, remove(facts, np.flatnonzero(facts.host.waiting)))

    assert without(program(10)) == pytest.approx(step_us(program(0)), abs=2)
    # What lies before a call in an operator is the operator's; what is long ago is something else's.
    assert without(program(10, outside=False)) == pytest.approx(step_us(program(0)) + 80, abs=2)
    assert without(program(10, python=50)) == pytest.approx(step_us(program(0)) + 300, abs=2)


def test_a_replayed_region_leaves_the_device_its_work() -> None:
    facts = loop(host=20, kernel=5)
    graph = step_us(facts, replayed(facts, facts.launches.call))
    assert 4 * 5 <= graph < 40
    assert step_us(facts, one_launch(operators(facts))) < step_us(facts)


def test_kernels_become_one() -> None:
    facts = loop(host=20, kernel=50)
    work, step = facts.trace.device_work, facts.trace.steps.of_event[facts.trace.device_work]
    groups = [work[step == one] for one in np.unique(step)]
    assert step_us(facts, fuse(facts, groups, [60_000] * len(groups))) == pytest.approx(50, rel=0.1)


def test_many_small_kernels_become_a_few() -> None:
    facts = loop(host=20, kernel=5, operators=10)
    step = facts.trace.steps.event
    few = batch(facts, step, facts.launches.call, launches=1, steps=len(step))
    assert step_us(facts, few) < 0.4 * step_us(facts)


def test_copies_on_a_stream_of_their_own_are_hidden() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            b.copy("HtoD", size=1 << 20, duration=60)
            with b.op("aten::mm", head=5):
                b.launch("gemm", duration=100)
    facts = Facts(b.build())
    copies = facts.trace.of(Kind.MEMCPY)
    assert step_us(facts) == pytest.approx(160, rel=0.05)
    assert step_us(facts, move(copies)) == pytest.approx(100, rel=0.05)


def test_another_thread_hides_work_but_has_to_do_it() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            with b.op("load", head=90):
                pass
            with b.op("aten::mm", head=25):
                b.launch("gemm", duration=10)
    facts = Facts(b.build())
    assert step_us(facts) > 110
    assert step_us(facts, overlap(operators(facts, "load"))) == pytest.approx(90, rel=0.05)


def test_time_in_which_nobody_does_anything_can_be_cut() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            with b.op("aten::mm", head=20):
                b.launch("gemm", duration=10)
            b.wait(500)
    facts = Facts(b.build())
    steps = facts.trace.steps
    end = facts.trace.end[operators(facts, "aten::mm")]
    assert step_us(facts, cut(end, steps.end)) < 40 < 500 < step_us(facts)


def test_what_a_fix_needs_itself_counts() -> None:
    facts = loop(host=20, kernel=5)
    assert step_us(facts, add(host_ns=30_000)) == pytest.approx(step_us(facts) + 30, rel=0.02)
    device_bound = loop(host=20, kernel=50)
    assert step_us(device_bound, add(device_ns=30_000)) == pytest.approx(step_us(device_bound) + 30, rel=0.02)


def test_a_slower_host_is_slower() -> None:
    facts = loop(host=20, kernel=5)
    assert simulate(slower(facts.graph, 2)).step_ns == pytest.approx(2 * simulate(facts.graph).step_ns, rel=0.05)


def test_threads_that_take_turns_are_one_line_of_work() -> None:
    """A backward pass on the autograd thread, for which the main thread waits without a row of its own."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            with b.op("aten::mm", head=20):
                b.launch("gemm", duration=5)
            b.thread, main = "200", b.thread
            with b.op("MmBackward", head=40):
                b.launch("gemm", duration=5)
            b.thread = main
    facts = Facts(b.build())
    assert facts.graph.host_lines == 1
    backward = operators(facts, "MmBackward")
    assert step_us(facts) - step_us(facts, remove(facts, backward)) == pytest.approx(47, abs=8)


def test_gaps_that_a_slow_host_left_are_no_pauses_of_the_device() -> None:
    # Each kernel ends long before the next launch arrives: the recording holds no pause between queued kernels.
    facts = loop(kernel=2, host=7, operators=160)
    quick = simulate(slower(facts.graph, 0.5)).step_ns / 1e3
    assert quick == pytest.approx(160 * 3.5, rel=0.02)
