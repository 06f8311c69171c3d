"""What a call of a program is seen to do."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.gate.observe import observe
from lanewise.fix.guard.program_parts import Found
from lanewise.fix.state import State
from lanewise.fix.subject import Subject


class _InACircle(nn.Module):
    """Its results hang in a circle of objects when it is done."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        circle: list[Any] = [y]
        circle.append(circle)
        return y


_HELD: list[torch.Tensor] = []


class _Held(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _HELD[:] = [x * 2]
        return _HELD[0]


def _kept(module: nn.Module) -> tuple[tuple[bool, ...], list[int]]:
    """Which results were still held, and the generations that were collected to know."""
    subject = Subject(module, module, Found([module], [], []), [((torch.ones(3),), {})], "inference")
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(info["generation"])

    gc.disable()
    gc.callbacks.append(note)
    try:
        return observe(subject, subject.calls[0], State(subject)).kept, collected
    finally:
        gc.callbacks.remove(note)
        gc.enable()


def test_results_in_a_circle_cost_no_whole_collection():
    """One takes a third of a second with a compiler loaded, and every candidate is observed dozens of times."""
    assert _kept(nn.ReLU()) == ((False,), [])
    assert _kept(_InACircle()) == ((False,), [1])


def test_results_that_are_held_are_seen():
    assert _kept(_Held()) == ((True,), [1, 2])
