from __future__ import annotations

from collections.abc import Sequence

from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def run(durations: Sequence[float], *, copy_in: int = -1, grids: Sequence[int] | None = None) -> TraceBuilder:
    """A warm-up step, then one gemm per step with the given durations, and a second kernel that never varies."""
    b = TraceBuilder()
    for step, duration in enumerate([10.0, *durations]):
        with b.step(tail=300), b.op("aten::mm"):
            b.launch("gemm", duration=duration, grid=(grids[step] if grids else 132, 1, 1))
            if step == copy_in:
                b.copy("HtoD", stream="9", delay=1, duration=duration + 30)
            b.launch("relu", duration=10)
    return b


def test_one_slow_sample_in_five() -> None:
    result = found("MEA107", run([100, 100, 100, 100, 160]).build())
    assert "gemm takes 100.0 us typically, 160.0 us at worst" in title("MEA107", result)
    assert result.gain_ns == 0


def test_the_thresholds() -> None:
    cleared("MEA107", run([100, 100, 100, 100, 130]).build())  # the 95 % quantile is 124
    found("MEA107", run([100, 100, 100, 100, 132]).build())  # 125.6
    cleared("MEA107", run([100] * 19 + [150]).build(), p95_ratio=9.0)
    found("MEA107", run([100] * 19 + [151]).build(), p95_ratio=9.0)


def test_four_steady_steps_are_too_few() -> None:
    assert "4 recorded" in needed("MEA107", run([100, 100, 100, 160]).build())


def test_a_kernel_beside_a_copy_is_slow_for_that_reason() -> None:
    cleared("MEA107", run([100, 100, 100, 100, 100, 160], copy_in=6).build())


def test_another_grid_is_another_kernel() -> None:
    cleared("MEA107", run([100, 100, 100, 100, 160], grids=[132, 132, 132, 132, 132, 264]).build())


def test_no_device_work() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    skipped("MEA107", b.build())


def test_the_threshold_of_a_kernels_share_is_one_percent() -> None:
    def beside(gemm: float) -> TraceBuilder:
        b = TraceBuilder()
        for duration in (100, 100, 100, 100, 100, 160):
            with b.step(), b.op("aten::add"):
                b.launch("add", duration=duration)
                b.launch("gemm", duration=gemm)
        return b

    # 112 us in the mean of the five steady steps.
    found("MEA107", beside(11_000).build())
    cleared("MEA107", beside(11_200).build())
