"""Training steps that do something else than the original, and nearly the same: each is rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates import optimizers
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject

pytestmark = pytest.mark.usefixtures("one_thread")


class Program:
    def __init__(self, lr: float) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, foreach=False)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)

    def gradients(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        return loss

    def step(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.gradients(x)
        self.optimizer.step()
        self.schedule.step()
        return loss

    def scheduled_twice(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.step(x)
        self.schedule.step()
        return loss

    def batch_overwritten(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.step(x)
        x.zero_()
        return loss

    def gradients_gone(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.step(x)
        self.optimizer.zero_grad()
        return loss

    def moments_rounded(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.step(x)
        for state in self.optimizer.state.values():
            state["exp_avg_sq"] = state["exp_avg_sq"].bfloat16().float()
        return loss

    def not_updated(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.gradients(x)
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.optimizer.step()
        self.schedule.step()
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
        return loss


def checked(lr: float, way: str) -> Any:
    program = Program(lr)
    subject = make_subject(lambda x: program.step(x), torch.randn(8, 16))
    state = State(subject)
    gate = Correctness(subject, state, seconds=0)
    other: Callable[..., Any] = getattr(program, way)
    candidate = Candidate(
        "other",
        "planted",
        "training step",
        "planted",
        lambda subject: ForwardPatch(subject.entry, lambda original: other),
    )
    return gate.check(candidate, candidate.build(subject))


@pytest.mark.parametrize("lr", [1e-2, 1e-9])
@pytest.mark.parametrize(
    "way", ["scheduled_twice", "batch_overwritten", "gradients_gone", "moments_rounded", "not_updated"]
)
def test_a_step_that_leaves_something_else_is_rejected(way: str, lr: float) -> None:
    assert not checked(lr, way).passed


@pytest.mark.parametrize("lr", [1e-2, 1e-9])
def test_the_step_itself_passes(lr: float) -> None:
    found = checked(lr, "step")
    assert found.passed, found.reason


class Clipped:
    """Clips gradients that the recorded batch does not make, and skips steps with a scaler."""

    def __init__(self, *, tokens: bool, adam: bool) -> None:
        torch.manual_seed(0)
        first = nn.Embedding(32, 16) if tokens else nn.Linear(16, 16)
        self.model = nn.Sequential(first, nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        kind = torch.optim.AdamW if adam else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=1e-3, foreach=False)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        self.batch = torch.arange(8).view(8, 1) if tokens else torch.randn(8, 16) * 0.1

    def step(
        self, x: torch.Tensor, *, clips: float = 5.0, skips: bool = True, updates: bool = True, by_value: bool = False
    ) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        if by_value:
            nn.utils.clip_grad_value_(self.model.parameters(), clips)
        elif clips:
            nn.utils.clip_grad_norm_(self.model.parameters(), clips)
        if skips:
            self.scaler.step(self.optimizer)
        else:
            self.optimizer.step()
        if updates:
            self.scaler.update()
        elif not skips:
            self.scaler._per_optimizer_states.clear()
        return loss

    def checked(self, candidate: Candidate | None = None, **ways: Any) -> Any:
        subject = make_subject(lambda x: self.step(x), self.batch)
        gate = Correctness(subject, State(subject), seconds=0)

        def build(subject: Any) -> Any:
            return ForwardPatch(subject.entry, lambda original: lambda x: self.step(x, **ways))

        candidate = candidate or Candidate("other", "planted", "training step", "planted", build)
        return gate.check(candidate, candidate.build(subject))


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize(
    "ways",
    [{"clips": 0.0}, {"clips": 6.0}, {"by_value": True}, {"skips": False}, {"updates": False, "skips": False}],
    ids=["not clipped", "clipped later", "clipped by value", "not skipped", "scale never changes"],
)
def test_clipping_and_skips_that_the_recorded_batch_does_not_need_are_checked(
    ways: dict[str, Any], adam: bool, tokens: bool
) -> None:
    found = Clipped(tokens=tokens, adam=adam).checked(**ways)
    assert not found.passed


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("adam", [False, True])
def test_a_step_that_clips_and_skips_as_it_did_passes(adam: bool, tokens: bool) -> None:
    assert Clipped(tokens=tokens, adam=adam).checked().passed
    program = Clipped(tokens=tokens, adam=adam)
    for candidate in optimizers.candidates(make_subject(lambda x: program.step(x), program.batch)):
        found = program.checked(candidate)
        assert found.passed, (candidate.name, found.reason)
