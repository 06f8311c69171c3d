from __future__ import annotations

from lanewise.capture.timing.clock import StepClock, quantile
from tests.capture.fakes import FakeDevice, FakeTime, clock_of


def run(device: FakeDevice, clock: StepClock, steps: int, host_us: float, device_us: float) -> None:
    clock.open()
    for _ in range(steps):
        device.time.pass_us(host_us)
        device.submit(device_us)
        clock.tick()
    clock.close()


def test_a_host_that_keeps_up_is_timed_on_the_host() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    run(device, clock, 20, host_us=55.0, device_us=3.2)
    summary = clock.summary()
    assert summary is not None
    assert (summary.method, summary.median_us, summary.samples) == ("host", 55.0, 20)


def test_a_host_that_runs_ahead_is_not_believed() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    run(device, clock, 20, host_us=60.0, device_us=202.0)
    summary = clock.summary()
    assert summary is not None
    assert summary.method == "mean"
    assert abs(summary.median_us - 202.0) < 5


def test_the_recorders_own_work_at_a_boundary_is_not_the_steps() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    clock.open()
    for _ in range(10):
        device.time.pass_us(20.0)
        clock.tick()
        device.time.pass_us(15.0)
        clock.resume()
    clock.close()
    summary = clock.summary()
    assert summary is not None
    assert (summary.median_us, summary.method) == (20.0, "host")


def test_a_device_that_is_a_few_steps_late_does_not_make_the_recorders_work_count() -> None:
    # Tiny steps: 100 us of work left at the end are five of them, and 40 steps together are 800 us.
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    clock.open()
    for _ in range(40):
        device.time.pass_us(20.0)
        clock.tick()
        device.time.pass_us(15.0)
        clock.resume()
    device.submit(65.0)
    clock.close()
    assert clock.samples()[1] == "host"
    assert clock.samples()[0][0] == 20.0


def test_a_stall_of_the_host_before_the_device_limits_is_left_out() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    clock.open()
    for number in range(40):
        device.time.pass_us(40_000.0 if number == 3 else 20.0)
        device.submit(200.0)
        clock.tick()
    clock.close()
    summary = clock.summary()
    assert summary is not None
    assert summary.method == "mean"
    # One of the steps counted was submitted before its boundary: 37 of them in 36.
    assert abs(summary.median_us - 200.0) < 6


def test_the_devices_own_stamp_counts_where_the_host_hears_late_that_it_is_done() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device, marks=True)
    clock.open()
    for _ in range(30):
        device.time.pass_us(10.0)
        device.submit(30.0)
        clock.tick()
    device.synchronize = lambda: device.time.pass_us(50_000.0)  # type: ignore[method-assign]
    clock.close()
    summary = clock.summary()
    assert summary is not None
    assert (summary.method, round(summary.median_us)) == ("mean", 30)


def test_device_timestamps_give_the_spread_of_device_limited_steps() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device, marks=True)
    run(device, clock, 100, host_us=60.0, device_us=202.0)
    summary = clock.summary()
    assert summary is not None
    assert summary.method == "device"
    assert abs(summary.median_us - 202.0) < 0.5
    assert summary.samples >= 3


def test_at_most_one_device_timestamp_per_millisecond() -> None:
    device = FakeDevice(FakeTime())
    marks = 0
    original = device.mark

    def counting() -> int:
        nonlocal marks
        marks += 1
        return original()

    device.mark = counting  # type: ignore[method-assign]
    clock = clock_of(device, marks=True)
    run(device, clock, 100, host_us=50.0, device_us=1.0)
    # Three at the start tell how late the device answers.
    assert marks <= 3 + 2 + 100 * 50 // 1000


def test_skipped_steps_leave_host_times_only() -> None:
    device = FakeDevice(FakeTime())
    clock = clock_of(device)
    clock.open()
    for us in [3000.0, 100.0, 50.0, 50.0, 50.0]:
        device.time.pass_us(us)
        clock.tick()
    clock.close()
    assert clock.samples(2) == ([50.0, 50.0, 50.0], "host")
    summary = clock.summary(2)
    assert summary is not None
    assert summary.steps == 3


def test_no_step_no_time() -> None:
    clock = clock_of(FakeDevice(FakeTime()))
    clock.open()
    clock.close()
    assert clock.summary() is None


def test_quantiles_interpolate() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([7.0], 0.2) == 7.0
    assert quantile([0.0, 10.0], 0.2) == 2.0


def test_a_device_that_answers_late_does_not_make_tiny_steps_longer() -> None:
    """On a virtual machine the host learns 300 us late that the device is done: 13 steps of 22 us."""
    device = FakeDevice(FakeTime(), answers_after_us=300.0)
    clock = clock_of(device)
    run(device, clock, 20, host_us=22.0, device_us=3.2)
    assert clock.samples() == ([22.0] * 20, "host")

    run(device, clock, 20, host_us=22.0, device_us=60.0)
    (mean,), method = clock.samples()
    assert method == "mean"
    assert abs(mean - 60.0) < 5


def test_how_far_the_device_is_behind_at_the_end_of_each_step() -> None:
    """A rank that is early: its device waits for another rank's, and the host, at the next step's begin, for its device."""
    device = FakeDevice(FakeTime())
    clock = clock_of(device, marks=True)
    clock.open()
    for wait in (0.0, 3000.0, 1000.0):
        device.time.pass_us(5000.0)
        device.submit(wait)
        clock.tick()
        device.synchronize()
        clock.resume()
    clock.close()
    summary = clock.summary()
    assert summary is not None
    assert summary.behind_us == (0.0, 3000.0, 1000.0)


def test_without_marks_nothing_is_known_of_the_device() -> None:
    clock = clock_of(FakeDevice(FakeTime()), marks=False)
    run(FakeDevice(FakeTime()), clock, 3, host_us=55.0, device_us=3.2)
    summary = clock.summary()
    assert summary is not None
    assert summary.behind_us == ()
