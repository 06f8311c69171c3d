"""On a card with little memory for the size of its calls, `optimize` finds what it finds on a large one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.optimize import optimize

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

_CALL = 1 << 28
"""Bytes of its input, and of its result."""


class Pointwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x * 1.5 + 0.5) * x - torch.tanh(x) * 0.25


@pytest.fixture
def small_card() -> Iterator[None]:
    """Thirty calls' size; the cases of one call would take over a hundred."""
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(30 * _CALL / whole)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_call_that_fills_a_thirtieth_of_the_card_is_verified_and_compiled(small_card: None) -> None:
    x = torch.randn(_CALL // 4 // 4096, 4096, device="cuda")
    with torch.no_grad():
        plan = optimize(Pointwise(), x, budget="60s", only=["compile"], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.outcome == "kept", attempt.reason
    assert "double precision" in plan.report.reference


def test_graphs_that_are_slower_leave_memory_for_the_compiler(small_card: None) -> None:
    x = torch.randn(4, 64, _CALL // 4 // (4 * 64), device="cuda")
    module = nn.GroupNorm(8, 64).cuda().requires_grad_(False)
    with torch.no_grad():
        plan = optimize(module, x, budget="60s", only=["cuda-graph", "compile-cuda-graph", "compile"], trace=False)
    outcomes = {attempt.name: f"{attempt.outcome}: {attempt.reason}" for attempt in plan.report.attempts}
    assert not [one for one in outcomes.values() if "OutOfMemory" in one], outcomes
