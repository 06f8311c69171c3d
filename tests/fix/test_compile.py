"""The loop with a real compiler: `torch.compile` on the CPU, for inference and for training."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.optimize import optimize
from lanewise.fix.plans.plan import load_plan
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.work.worklist import WorkList

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(which("g++") is None, reason="needs a C++ compiler"),
]


class Chain(nn.Module):
    """Pointwise work that fuses into one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = (x * self.scale + 0.1).clamp(-1.0, 1.0)
        return x


class Smooth(nn.Module):
    """The same with a gradient that does not jump: where one does, rounding decides on which side a value falls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = torch.tanh(x * self.scale + 0.1)
        return x


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def test_a_pointwise_chain_is_compiled_and_the_plan_survives_a_file(tmp_path: Path) -> None:
    model = Chain().eval().requires_grad_(False)
    x = torch.randn(2048, 64)
    expected = model(x)
    plan = optimize(model, x, budget="60s", only=["compile"])
    assert plan.report.winner == ["compile"], plan.summary()
    (attempt,) = plan.report.attempts
    assert attempt.numeric_class in {"exact", "same precision"}
    assert attempt.repaid_after > 0
    assert {shown.prediction: shown.seen for shown in attempt.shown} == {
        "compiled regions run": True,
        "operators are fused away": True,
    }
    assert plan.report.against_eager is not None
    assert plan.report.against_eager.low > 1
    assert plan.report.seconds < 60 * 1.2
    with plan:
        assert torch.allclose(model(x), expected, atol=1e-5)
        model(x[:7])
        assert plan.counts() == {"compile": {"fast": 1, "shape": 1}}
    assert torch.equal(model(x), expected)
    loaded = load_plan(plan.save(tmp_path / "plan.json"), model, x)
    with loaded:
        assert torch.allclose(model(x), expected, atol=1e-5)


def test_gradients_are_checked_when_training() -> None:
    # With an input that needs gradients, second derivatives are checked as well, which the compiler refuses.
    model = Smooth().train()
    x = torch.randn(512, 64)
    plan = optimize(model, x, budget="90s", only=["compile"], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.outcome in {"kept", "not faster"}, attempt
    with plan:
        model(x).sum().backward()
    assert model.scale.grad is not None
    # What is slower at first sight is not checked there.
    subject = make_subject(model, x)
    (compiled,) = [one for one in catalogue(subject, WorkList()) if one.name == "compile"]
    found = Correctness(subject, State(subject), seconds=2).check(compiled, compiled.build(subject))
    assert found.passed, found.reason
    assert any(check.rule == "C3 gradients" and check.passed for check in found.checks)


def test_dropout_is_compared_with_the_same_random_numbers() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Tanh()).train()
    x = torch.randn(64, 64)
    plan = optimize(model, x, budget="60s", only=["compile"], trace=False)
    (attempt,) = plan.report.attempts
    assert "same random numbers" in plan.report.reference
    assert attempt.outcome in {"kept", "not faster"}, attempt
