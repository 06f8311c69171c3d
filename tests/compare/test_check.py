"""The gate: seen to fail on a planted regression of 10 %, to pass without it, and to say when it cannot tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lanewise.compare.budget import parse_budgets
from lanewise.compare.check import BudgetResult, CheckReport, check
from lanewise.compare.diff import run_of
from lanewise.compare.sides.arm import Arm
from lanewise.errors import UsageError
from lanewise.trace.schema import Kind
from tests.compare.programs import PROGRAM, Do, change, insert, pointwise, record
from tests.support.builder import H100, TraceBuilder

RELU = Do("aten::relu", pointwise("relu_kernel<c10::BFloat16>"), 2.9)


def cpu_trace(us: float, seed: int, *, steps: int = 12, noise: float = 0.02) -> Any:
    """A CPU program whose step takes `us` with noise; runs differ from one another as well."""
    draw = np.random.default_rng(seed)
    level = draw.normal(1.0, noise)
    b = TraceBuilder(metadata={})
    for _ in range(steps):
        with b.step(), b.op("aten::addmm"):
            b.wait(us * level * draw.normal(1.0, noise))
    return b.build()


def cpu_arm(us: float, runs: int, *, seed: int, alternating: int = 0) -> Arm:
    found = [run_of(cpu_trace(us, seed * 1000 + i)) for i in range(runs)]
    if alternating:
        found = [replace(run, recorded_at=alternating + 10 * i) for i, run in enumerate(found)]
    return Arm("this", found)


def gate(arm: Arm, baseline: Arm | None = None, **table: Any) -> CheckReport:
    return check(arm, parse_budgets(table), baseline=baseline)


def only(report: CheckReport) -> BudgetResult:
    (result,) = report.results
    return result


LIMIT = {"max_increase": "3 %"}


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_regression_of_ten_percent_fails(seed: int) -> None:
    report = gate(cpu_arm(1100, 8, seed=2 * seed), cpu_arm(1000, 8, seed=2 * seed + 1), step_time=LIMIT)
    assert only(report).status == "over"
    assert not report.passed
    assert "allowed +3.0 %" in only(report).sentence


@pytest.mark.parametrize("seed", range(5))
def test_the_same_program_passes(seed: int) -> None:
    report = gate(
        cpu_arm(1000, 8, seed=2 * seed), cpu_arm(1000, 8, seed=2 * seed + 1), step_time={"max_increase": "6 %"}
    )
    assert report.passed
    assert only(report).status in {"within", "undecided"}


def test_one_run_per_side_cannot_decide_and_says_how_many_would() -> None:
    report = gate(cpu_arm(1100, 1, seed=1), cpu_arm(1000, 1, seed=2), step_time=LIMIT)
    assert only(report).status == "undecided"
    assert "record 5" in only(report).sentence
    assert report.passed
    assert report.undecided == 1


def test_a_regression_within_what_is_allowed_passes() -> None:
    assert gate(cpu_arm(1100, 8, seed=1), cpu_arm(1000, 8, seed=2), step_time={"max_increase": "25 %"}).passed
    assert (
        only(gate(cpu_arm(1100, 8, seed=1), cpu_arm(1000, 8, seed=2), step_time={"max_increase": "25 %"})).status
        == "within"
    )


def test_an_absolute_limit_is_decided_by_the_interval() -> None:
    arm = cpu_arm(1000, 8, seed=1)
    assert only(gate(arm, step_time=900)).status == "over"
    assert only(gate(arm, step_time=1100)).status == "within"
    close = only(gate(arm, step_time=float(np.median([run.step_ns for run in arm.runs])) / 1e3))
    assert close.status == "undecided"
    assert close.low is not None
    assert close.high is not None
    assert close.low < (close.limit or 0) < close.high


def test_a_warning_does_not_fail() -> None:
    report = gate(cpu_arm(1000, 8, seed=1), step_time={"max_us": 900, "level": "warn"})
    assert only(report).status == "over"
    assert report.passed


def test_what_is_off_is_left_out() -> None:
    with pytest.raises(UsageError, match="no budget is on"):
        gate(cpu_arm(1000, 1, seed=1), step_time={"max_us": 900, "level": "off"})


def arm_of(*traces: Any) -> Arm:
    return Arm("this", [run_of(trace) for trace in traces])


def test_counts_are_exact() -> None:
    arm = arm_of(record(PROGRAM, 1))
    count = len(PROGRAM)
    assert gate(arm, launches=count).passed
    over = only(gate(arm, launches=count - 1))
    assert over.status == "over"
    assert f"{count}, allowed at most {count - 1}" in over.sentence
    assert only(gate(arm, busy_share=0.999)).status == "over"
    assert only(gate(arm, busy_share={"min": 0.0001})).status == "within"


def test_counts_against_the_baseline() -> None:
    base, more = arm_of(record(PROGRAM, 1)), arm_of(record(insert(PROGRAM, 5, RELU), 2))
    assert not gate(more, base, launches={"max_increase": 0}).passed
    assert gate(base, more, launches={"max_increase": 0}).passed
    assert gate(more, base, launches={"max_increase": "5 %"}).passed


def test_the_kernel_list_is_held() -> None:
    base = arm_of(record(PROGRAM, 1))
    assert gate(arm_of(record(PROGRAM, 2)), base, kernels="same").passed
    report = gate(arm_of(record(insert(PROGRAM, 5, RELU), 2)), base, kernels="same")
    assert not report.passed
    assert "new: relu" in only(report).sentence
    swapped = gate(arm_of(record(change(PROGRAM, 5, name="nvjet_sm90_tst_999x1_h_bz_NNT"), 2)), base, kernels="same")
    assert "kernel: " in only(swapped).sentence


def readback() -> Any:
    b = TraceBuilder()
    for _ in range(5):
        with b.step():
            for _ in range(12):
                with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
                    b.launch("kernel", duration=40)
                    b.copy("DtoH", destination="pageable", size=4, duration=1)
                    b.synchronize()
    return b.build()


def test_forbidden_findings_fail_by_code_and_by_family() -> None:
    arm = arm_of(readback())
    codes = {finding.code for finding in arm.runs[0].findings}
    wanted = next(code for code in sorted(codes) if code.startswith("SYN"))
    report = gate(arm, forbid=[wanted])
    assert not report.passed
    assert only(report).code == wanted
    assert not gate(arm, forbid=["SYN"]).passed
    assert gate(arm, forbid=["DIS"]).passed


def test_a_budget_that_needs_a_baseline_says_so() -> None:
    with pytest.raises(UsageError, match="step_time, kernels refers to a baseline"):
        gate(cpu_arm(1000, 1, seed=1), step_time={"max_increase": "5 %"}, kernels="same")


def test_a_baseline_of_another_card_is_refused() -> None:
    other = record(PROGRAM, 1)
    other.metadata = {"deviceProperties": [{**H100, "name": "NVIDIA A100-SXM4-80GB"}]}
    with pytest.raises(UsageError, match="not comparable: card differs"):
        gate(arm_of(record(PROGRAM, 2)), arm_of(other), launches={"max_increase": 0})


def test_what_the_recording_does_not_hold_is_skipped() -> None:
    report = gate(cpu_arm(1000, 1, seed=1), launches=3, memory_peak=10)
    assert {result.status for result in report.results} == {"skipped"}
    assert report.passed


def test_memory_is_held_where_it_was_recorded() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::empty"):
            b.launch("k")
            b.row("memory", time=round(b.now * 1000), lane=0, bytes=5_000_000, address=1, allocated=5_000_000,
                  reserved=8_000_000, device_type=1, device_id=0)  # fmt: skip
    arm = arm_of(b.build())
    assert not gate(arm, memory_peak=4).passed
    assert gate(arm, memory_peak={"max_mb": 6}).passed


def test_alternating_runs_decide_what_unpaired_ones_cannot() -> None:
    """Drift that both sides share cancels when the recordings alternate."""
    drift = np.exp(np.random.default_rng(3).normal(0, 0.15, 8))

    def arm(us: float, first: int, *, when: int) -> Arm:
        runs = [run_of(cpu_trace(us * level, first + i, noise=0.004)) for i, level in enumerate(drift)]
        return Arm("x", [replace(run, recorded_at=when + 10 * i) for i, run in enumerate(runs)])

    together = gate(arm(1100, 50, when=11), arm(1000, 10, when=10), step_time=LIMIT)
    apart = gate(arm(1100, 50, when=1000), arm(1000, 10, when=10), step_time=LIMIT)
    low, high = only(together).low, only(together).high
    wide_low, wide_high = only(apart).low, only(apart).high
    assert low is not None
    assert high is not None
    assert wide_low is not None
    assert wide_high is not None
    assert high - low < (wide_high - wide_low) / 3
    assert low > 0.03


def test_kinds_of_work_on_the_cpu() -> None:
    arm = cpu_arm(1000, 1, seed=1)
    assert arm.runs[0].work.ops[0].kind == "operator"
    assert Kind.OPERATOR == 1
    assert gate(arm, operators=1).passed
    assert not gate(arm, operators=0).passed
