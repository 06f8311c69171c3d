from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lanewise.capture import window
from lanewise.capture.schedule import Plan
from lanewise.capture.window import Phase
from lanewise.errors import LanewiseError
from tests.capture.fakes import Bench

SMALL = Plan(skip=2, timed_min=3, timed_max=3, warmup=2, active_min=4, active_max=4)


def test_the_course_of_a_recording() -> None:
    bench = Bench(SMALL)
    bench.steps(2)
    assert (bench.window.phase, bench.log) == (Phase.SKIP, [])
    bench.steps(1)
    assert bench.window.phase is Phase.TIMED
    bench.steps(2)
    assert bench.log == []
    bench.steps(1)
    assert (bench.window.phase, bench.log) == (Phase.WARMUP, ["prepare", "step 5"])
    bench.steps(2)
    assert bench.log == ["prepare", "step 5", "step 6", "start", "step 7"]
    bench.steps(4)
    assert bench.log[5:] == ["step 8", "step 9", "step 10", "stop", "recorded", "done"]
    assert bench.window.phase is Phase.DONE


def test_timing_ends_before_the_profiler_is_attached() -> None:
    bench = Bench(SMALL)
    bench.steps(6, us=100.0)
    assert bench.window.measured.unprofiled is not None
    assert bench.window.measured.unprofiled.median_us == 100.0
    assert bench.log[0] == "prepare"


@pytest.mark.parametrize(("paces", "said"), [([100.0, 120.0], 110.0), ([100.0], None), ([], None)])
def test_the_hosts_pace_is_asked_for_around_the_timed_steps_and_no_part_of_them(
    paces: list[float], said: float | None
) -> None:
    bench = Bench(SMALL)
    bench.paces = paces
    bench.steps(6, us=100.0)
    assert bench.window.measured.yardstick_us == said
    assert bench.window.measured.unprofiled is not None
    assert bench.window.measured.unprofiled.median_us == 100.0


def test_distortion_is_profiled_over_unprofiled() -> None:
    bench = Bench(Plan(active_min=10, active_max=10))
    bench.steps(100, us=100.0, profiled_us=190.0)
    measured = bench.window.measured
    assert measured.distortion == pytest.approx(1.9)
    assert measured.interval == (pytest.approx(1.9), pytest.approx(1.9))
    assert (measured.active, measured.stopped_by) == (10, "cap")


def test_slow_first_recorded_steps_do_not_count_as_distortion() -> None:
    bench = Bench(Plan(active_min=10, active_max=40))
    bench.steps(26, us=100.0)
    assert bench.window.recording
    for us in [5000.0, 900.0, 500.0, 300.0, 200.0, *[150.0] * 40]:
        bench.steps(1, us=us)
    assert bench.window.measured.distortion == pytest.approx(1.5)
    assert bench.window.measured.settled_after == 10
    assert bench.window.measured.stopped_by == "settled"


def test_the_window_shrinks_before_the_trace_gets_too_large() -> None:
    bench = Bench(Plan(trace_bytes=35_000_000), bytes_per_step=10_000_000)
    bench.steps(60, us=2000.0)
    assert bench.window.measured.stopped_by == "size"
    assert bench.window.measured.active == 3


def test_a_program_that_ends_while_recording_keeps_its_complete_steps() -> None:
    bench = Bench(SMALL)
    bench.steps(10)
    bench.window.finish("exception")
    measured = bench.window.measured
    assert (measured.active, measured.unfinished, measured.stopped_by) == (2, 9, "exception")
    assert bench.log[-3:] == ["stop", "recorded", "done"]


def test_a_program_that_ends_early_leaves_no_profiler_behind() -> None:
    bench = Bench(SMALL)
    bench.steps(6)
    bench.window.finish("program ended")
    assert bench.log == ["prepare", "step 5", "abandon", "done"]
    bench = Bench(SMALL)
    bench.steps(5)
    bench.window.finish("program ended")
    assert bench.log == ["done"]
    assert bench.window.measured.unprofiled is not None
    assert bench.window.measured.unprofiled.steps == 2


def test_finishing_twice_is_finishing_once() -> None:
    bench = Bench(SMALL)
    bench.steps(9)
    bench.window.finish("interrupt")
    bench.window.finish("program ended")
    assert bench.log.count("done") == bench.log.count("recorded") == 1
    assert bench.window.measured.stopped_by == "interrupt"


def test_other_threads_do_not_make_steps() -> None:
    bench = Bench(SMALL)
    bench.steps(1)
    other = threading.Thread(target=bench.steps, args=(50,))
    other.start()
    other.join()
    assert bench.window.steps == 0


def test_a_better_source_starts_the_count_again_until_recording_begins() -> None:
    bench = Bench(SMALL)
    bench.steps(4)
    bench.window.restart()
    assert (bench.window.phase, bench.window.steps) == (Phase.SKIP, -1)
    bench.steps(8)
    bench.window.restart()
    assert bench.window.phase is not Phase.SKIP


def test_whole_recordings_have_no_steps_and_no_baseline() -> None:
    bench = Bench(Plan())
    bench.window.begin_whole()
    bench.time.pass_us(500)
    bench.window.finish("program ended")
    assert bench.log == ["prepare", "start", "stop", "recorded", "done"]
    assert bench.window.measured.distortion is None
    assert (bench.window.measured.active, bench.window.measured.unfinished) == (0, None)


def test_a_whole_recording_is_cut_by_size_alone() -> None:
    bench = Bench(Plan(active_seconds=1.0, trace_bytes=100))
    bench.window.begin_whole()
    bench.time.pass_us(1e10)  # it may load for hours before it works
    assert bench.window.over_limit() == ""
    bench.bytes = 200
    assert bench.window.over_limit() == "size"
    assert bench.window.cut("size")
    assert bench.log == ["prepare", "start", "stop", "recorded", "done"]
    assert bench.window.over_limit() == ""


def test_a_step_that_does_not_end_is_cut_by_time() -> None:
    bench = Bench(Plan(skip=0, timed_max=0, warmup=0, active_seconds=1.0))
    bench.steps(2)
    assert bench.window.recording
    assert bench.window.over_limit() == ""
    bench.time.pass_us(11e6)
    assert bench.window.over_limit() == "time"
    assert bench.window.cut("time")
    assert bench.window.over_limit() == ""


def test_rows_that_end_while_another_thread_asks_are_not_over_any_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Plan(skip=0, timed_max=0, warmup=0, active_seconds=1.0, trace_bytes=100))
    bench.steps(2)
    bench.time.pass_us(11e6)

    def ends(**_: bool) -> float:
        bench.window.finish("program ended")
        return 0.0

    assert bench.window._size is not None
    monkeypatch.setattr(bench.window._size, "predicted", ends)
    assert bench.window.over_limit() == ""


def test_without_skip_and_warmup_recording_begins_at_once() -> None:
    bench = Bench(Plan(skip=0, timed_max=0, warmup=0, active_min=3, active_max=3))
    bench.steps(1)
    assert bench.log == ["prepare", "start", "step 0"]
    bench.steps(3)
    assert bench.log[-2:] == ["recorded", "done"]
    assert bench.device.synchronized == 1  # the last one: with no warm-up there is nothing to keep out


def test_a_disabled_window_ignores_everything() -> None:
    bench = Bench(SMALL)
    bench.steps(4)
    bench.window.disable()
    bench.steps(40)
    bench.window.finish("program ended")
    assert bench.log == []


def test_what_the_recorder_does_at_a_boundary_is_no_part_of_a_step() -> None:
    bench = Bench(Plan(active_min=10, active_max=10))
    original = bench.window._record  # pyright: ignore[reportPrivateUsage]

    def slow(self: object) -> None:
        original()
        bench.time.pass_us(40)

    from lanewise.capture import window

    window._ON_BOUNDARY[Phase.ACTIVE] = slow  # pyright: ignore[reportPrivateUsage]
    try:
        bench.steps(60, us=100.0, profiled_us=150.0)
    finally:
        window._ON_BOUNDARY[Phase.ACTIVE] = window.Window._record  # pyright: ignore[reportPrivateUsage]
    assert bench.window.measured.distortion == pytest.approx(1.5)


def test_lost_device_records_are_recorded_once_more_without_timing_again() -> None:
    bench = Bench(SMALL)
    bench.again = True
    bench.steps(40)
    assert [word for word in bench.log if not word.startswith("step")] == [
        *["prepare", "start", "stop", "recorded"] * 2,
        "done",
    ]
    assert bench.window.measured.unprofiled is not None
    assert bench.window.measured.unprofiled.steps == 3


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_steps_go_on_in_the_next_thread_when_theirs_has_ended() -> None:
    """A thread per request: identifiers of threads are given away again, so that they tell nothing."""
    bench = Bench(SMALL)
    for _ in range(14):
        _in_a_thread(lambda: bench.steps(1))
    assert [word for word in bench.log if "step" not in word] == ["prepare", "start", "stop", "recorded", "done"]
    assert bench.window.measured.active == 4
    assert bench.of_all_threads


def test_a_thread_that_ends_stops_what_only_it_can_stop() -> None:
    bench = Bench(SMALL)
    stopped_on: list[int] = []
    _in_a_thread(lambda: (bench.steps(9), stopped_on.append(threading.get_ident()))[0])
    assert bench.log[-3:] == ["stop", "recorded", "done"]
    assert bench.stopped_on == stopped_on
    assert bench.window.measured.stopped_by == "thread ended"
    bench.window.finish("program ended")
    assert bench.log.count("stop") == 1


def test_steps_of_other_threads_do_not_count_while_theirs_lives() -> None:
    bench = Bench(SMALL)
    bench.steps(2)
    _in_a_thread(lambda: bench.steps(5))
    assert bench.window.steps == 1


def test_the_end_on_another_thread_comes_at_the_next_boundary() -> None:
    bench = Bench(SMALL)
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        bench.steps(9)
        begun.set()
        go_on.wait(10)
        bench.steps(1)
        go_on.clear()
        go_on.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    bench.window.finish("program ended")
    assert bench.log[-3:] == ["stop", "recorded", "done"]
    assert bench.stopped_on == [thread.ident]
    go_on.set()
    thread.join()


def test_a_thread_that_never_comes_to_a_boundary_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_LONGEST_WAIT", 0.01)
    bench = Bench(SMALL)
    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (bench.steps(9), begun.set(), over.wait(10)))
    thread.start()
    begun.wait(10)
    with pytest.raises(LanewiseError, match="only it can stop the profiler"):
        bench.window.finish("program ended")
    assert "stop" not in bench.log
    over.set()
    thread.join()
    assert "stop" not in bench.log
