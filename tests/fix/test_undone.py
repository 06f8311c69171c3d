"""Trying and undoing leave a user's process as it was: alarms, optimizers, layouts."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates import layout, optimizers
from lanewise.fix.process_settings import changed_settings, put_back, settings
from lanewise.fix.subject import make_subject
from lanewise.fix.time_budget import Budget, OutOfTime


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timer signals")
def test_an_alarm_of_the_users_rings_after_all() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        clock = Budget(10)
        with clock.at_most(5), clock.at_most(4):
            time.sleep(0.01)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 0.2
        with pytest.raises(OutOfTime), clock.at_most(0.25):
            time.sleep(5)
        time.sleep(0.05)
        assert rung == [1], "it would have rung meanwhile"
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_optimizer_that_was_fused_for_a_while_has_nothing_new() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    names = set(vars(optimizer))
    subject = make_subject(step, torch.randn(2, 4))
    for candidate in optimizers.candidates(subject):
        variant = candidate.build(subject)
        for _ in range(2):
            variant.enable()
            step(torch.randn(2, 4))
            variant.disable()
        assert set(vars(optimizer)) == names
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    scaler.step(optimizer)


def test_a_layout_that_is_undone_keeps_a_type_that_was_given_meanwhile() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    subject = make_subject(net, torch.randn(1, 3, 8, 8))
    variant: Any = layout.candidates(subject)[0].build(subject)
    variant.enable()
    net.half()
    variant.disable()
    assert net[0].weight.dtype is torch.float16
    assert net[0].weight.is_contiguous()


def test_a_recursion_limit_that_was_raised_is_put_back_and_no_fault() -> None:
    """torch's compiler raises it whenever it compiles: every program that was compiled for the first time was rejected."""
    before = settings()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(limit + 1000)
        assert changed_settings(before) == []
        put_back(before)
        assert sys.getrecursionlimit() == limit
        sys.setrecursionlimit(limit - 1)
        assert changed_settings(before) == ["recursion limit"]
    finally:
        sys.setrecursionlimit(limit)
