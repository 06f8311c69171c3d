"""The whole loop once on the CPU, among the fast tests: layout, type, threads and the compiler are tried, proven, confirmed
and taken off again. What comes of each depends on the machine; that it is right, told and undone does not."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lanewise
from lanewise.fix.trial.shares import OWED_S
from lanewise.show.plan.plan_text import plan_markdown
from lanewise.trace.cores import usable_cores

BUDGET_S = 45.0
TRIED = {"kept", "surpassed", "not faster", "out of budget", "not credited"}


class Scaled(nn.Module):
    """A convolution, and pointwise work that fuses. It ends in rows: images would lie in memory in another way in calls
    that the plan hands over."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolution(x)
        for _ in range(6):
            x = x * 1.01 + 0.1
        return x.flatten(1)


@pytest.mark.slow  # what it says of the other candidates depends on how busy the machine is
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(which("g++") is None, reason="needs a C++ compiler")
def test_the_loop_from_a_model_to_a_proven_plan(tmp_path: Path) -> None:
    model, x = Scaled().eval().requires_grad_(False), torch.randn(4, 8, 32, 32)
    expected, threads = model(x), torch.get_num_threads()
    names = ["channels-last", "bf16-autocast", *(["threads-2"] if usable_cores() == 2 else []), "compile"]
    said: list[str] = []
    plan = lanewise.optimize(
        model, x, budget=BUDGET_S, only=names, allow=["bf16-autocast"], progress=said.append, goal="throughput"
    )
    report = plan.report
    outcomes = {attempt.name: attempt.outcome for attempt in report.attempts}
    assert sorted(outcomes) == sorted(names)
    assert set(outcomes.values()) <= TRIED, [(one.name, one.outcome, one.reason) for one in report.attempts]
    assert report.seconds < 1.2 * BUDGET_S + OWED_S
    for attempt in report.attempts:
        assert all(check.passed for check in attempt.checks), attempt
        assert (attempt.outcome == "kept") == (attempt.name in report.winner)
        # What is kept may change when all ways are compared, and after the recording: then the reason says so.
        told = {attempt.outcome, "kept", "not faster"}
        assert any(line.split("] ", 1)[1].startswith(f"{attempt.name}: {one}") for line in said for one in told)
        shown = {attempt.outcome, *(["not proven"] if attempt.outcome == "not faster" else [])}
        assert any(f"| {attempt.name} | {one} |" in plan_markdown(report) for one in shown)
    if report.winner:
        assert report.against_eager is not None
        assert report.against_eager.verdict == "faster"
    with plan:
        close = 2e-2 if "bf16-autocast" in report.winner else 1e-4
        assert torch.allclose(model(x), expected, atol=close)
    loaded = lanewise.load_plan(plan.save(tmp_path / "plan.json"), model, x)
    assert loaded.report.winner == report.winner
    assert torch.equal(model(x), expected)
    assert torch.get_num_threads() == threads
