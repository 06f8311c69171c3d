"""On a card: what is planted is rejected by the same gates for the same reasons, and no fake speed is kept."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree

from lanewise.fix.optimize import optimize
from tests.fix import programs, test_plants, test_unseen_plants
from tests.fix.programs import planted
from tests.fix.test_planted import WRONG, X

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

_ELSEWHERE = {
    "errors swallowed": "an index that is out of range ends a process that has a card, so that it is not asked there",
    "scratch shared by threads": "threads do not share the default device, on which the plant is made: see below",
}
PLANTS = {
    name: one
    for name, one in (test_plants.PLANTS | test_plants.MORE | test_unseen_plants.PLANTS).items()
    if name not in _ELSEWHERE
}


@pytest.fixture
def _on_the_card() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What a plant makes by itself is made there, too."""
    before = gc.get_threshold()
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)
    gc.set_threshold(*before)


def moved(inputs: Any) -> Any:
    """Tensors on the card, also those that an object holds."""

    def one(value: Any) -> Any:
        if isinstance(value, SimpleNamespace):
            return SimpleNamespace(**moved(vars(value)))
        return value.detach().cuda().requires_grad_(value.requires_grad)

    return _pytree.tree_map_only((torch.Tensor, SimpleNamespace), one, inputs)


@pytest.mark.usefixtures("_on_the_card")
@pytest.mark.parametrize("name", PLANTS)
def test_an_error_is_found_for_its_reason(name: str) -> None:
    make, inputs, fast, reason = PLANTS[name]
    found = test_plants.judged(make().cuda(), moved(inputs), planted("bad", fast))
    assert reason in f"{[check.rule + ': ' + check.detail for check in found.checks if not check.passed]}"


@pytest.mark.usefixtures("_on_the_card")
@pytest.mark.parametrize("name", PLANTS)
def test_the_program_itself_passes(name: str) -> None:
    make, inputs, _, _ = PLANTS[name]
    found = test_plants.judged(make().cuda(), moved(inputs), planted("same", lambda module, original: original))
    assert found.passed, found.reason


def test_a_scratch_that_threads_share_is_found() -> None:
    def shared(module: Any, original: Any) -> Callable[..., Any]:
        scratch = torch.empty(8, 16, device="cuda")

        def forward(x: torch.Tensor) -> torch.Tensor:
            if x.shape != scratch.shape:
                return original(x)
            scratch.copy_(x)
            time.sleep(2e-4)
            return F.linear(scratch, module.weight, module.bias)

        return forward

    found = test_plants.judged(test_plants.inference().cuda(), moved(test_plants.X), planted("bad", shared))
    assert "threads" in f"{[check.rule for check in found.checks if not check.passed]}"


class Slow(nn.Module):
    """Takes twenty times as long as it has to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(256, 256) / 16), nn.Parameter(torch.randn(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(19):
            F.linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


def without_the_repeats(fault: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The fault upon a fast path that is twenty times as fast as the original."""

    def forward(module: Any, original: Any) -> Any:
        def once(x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, module.weight, module.bias)

        return fault(module, once)

    return forward


@pytest.mark.parametrize("name", WRONG)
def test_fake_speed_is_rejected_by_the_real_clock(name: str) -> None:
    module = Slow().cuda().eval().requires_grad_(False)
    x = torch.randn(128, 256, generator=X).cuda()
    before = module(x)
    candidate = planted("bad", without_the_repeats(WRONG[name]))
    plan = optimize(module, x, budget="40s", only=["bad"], extra=[candidate], trace=False)
    (attempt,) = plan.report.attempts
    # Looking a call up by its content takes a copy to the host: that may be as slow as the program.
    assert attempt.outcome in {"wrong", "not faster"} if "content" in name else attempt.outcome == "wrong", attempt
    assert not plan
    assert torch.equal(module(x), before)


def test_the_same_without_a_fault_is_kept() -> None:
    module = Slow().cuda().eval().requires_grad_(False)
    x = torch.randn(128, 256, generator=X).cuda()
    good = planted("good", without_the_repeats(lambda module, original: original))
    plan = optimize(module, x, budget="40s", only=["good"], extra=[good], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.outcome == "kept", (attempt.reason, attempt.timing)


def test_results_that_are_kept_by_content_are_no_speed_either() -> None:
    module = nn.Linear(256, 256).cuda().eval().requires_grad_(False)
    x = torch.randn(128, 256, generator=X).cuda()
    plan = optimize(
        module, x, budget="40s", only=["bad"], extra=[planted("bad", programs.cached_by_content)], trace=False
    )
    (attempt,) = plan.report.attempts
    assert attempt.outcome in {"wrong", "not faster"}
    assert not plan
