"""Running a program leaves nothing behind: whatever it steps, draws from or writes to is put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from tests.fix.programs import planted


def test_schedules_and_gradient_scalers_of_a_step_are_put_back() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], milestones=[2])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        return loss

    def seen() -> Any:
        return repr((schedule.state_dict(), cosine.state_dict(), scaler.state_dict(), optimizer.param_groups[0]["lr"]))

    x = torch.randn(2, 4)
    before = seen()
    subject = make_subject(step, x)
    state = State(subject)
    rates: list[float] = []
    for _ in range(2):
        for _ in range(5):
            step(x)
        rates.append(optimizer.param_groups[0]["lr"])
        assert seen() != before
        state.restore()
        assert seen() == before
    assert rates[0] == rates[1], "the same steps again are the same"


def test_random_numbers_of_python_and_numpy_are_put_back_and_are_the_same_for_every_try() -> None:
    shared: Any = np.random

    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * random.random() * float(shared.rand())

    before = random.getstate(), shared.get_state()[1].tobytes()
    subject = make_subject(Noisy().eval(), torch.randn(4, 4))
    Correctness(subject, State(subject), seconds=0.1)
    assert subject.random
    assert (random.getstate(), shared.get_state()[1].tobytes()) == before


def test_tensors_that_are_plain_attributes_and_own_generators_are_put_back() -> None:
    mine = np.random.default_rng(0)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.mean = torch.zeros(4)
            self.last: Any = torch.ones(1)
            self.seen = [torch.zeros(())]
            self.generator = torch.Generator().manual_seed(5)
            self.python = [random.Random(1)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean += x.detach().mean(0)
            self.last = x.detach()
            noise = torch.rand(4, generator=self.generator)
            return self.layer(x) + noise * self.python[0].random() * float(mine.random())

    model = Own().train()

    def states() -> Any:
        return model.generator.get_state().tolist(), model.python[0].getstate(), mine.bit_generator.state

    before, last, mean = states(), model.last, model.mean
    subject = make_subject(model, torch.randn(4, 4))
    found = Correctness(subject, State(subject), seconds=0).check(*same(subject))
    assert found.passed, found.reason
    assert subject.random
    assert states() == before
    assert model.mean is mean
    assert torch.equal(mean, torch.zeros(4)), "the NaN of the gate's inputs would stay in it"
    assert model.last is last
    assert torch.equal(last, torch.ones(1))


def same(subject: Any) -> Any:
    candidate = planted("same", lambda module, original: original)
    return candidate, candidate.build(subject)
