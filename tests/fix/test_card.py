"""What only a CUDA device can show: streams, captured graphs, fused kernels inside of them; and the planted fakes again."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.model import Attempt
from lanewise.fix.optimize import optimize
from lanewise.fix.plan import Plan
from tests.fix import programs
from tests.fix.programs import planted
from tests.fix.test_planted import WRONG

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def tried(target: Any, inputs: Any, *only: str, **options: Any) -> tuple[Plan, dict[str, Attempt]]:
    """What becomes of some candidates."""
    plan = optimize(target, inputs, budget=options.pop("budget", "20s"), only=list(only), **options)
    return plan, {attempt.name: attempt for attempt in plan.report.attempts}


def launch_bound() -> tuple[nn.Module, torch.Tensor]:
    """Many small layers: the host takes longer to launch them than the card to run them."""
    layers = [layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    module = nn.Sequential(*layers).cuda().eval().requires_grad_(False)
    return module, torch.randn(32, 64, device="cuda")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_and_fake_speed_are_rejected_on_a_card(name: str) -> None:
    module = nn.Linear(1024, 1024).cuda().eval().requires_grad_(False)
    x = torch.randn(512, 1024, device="cuda")
    plan, found = tried(module, x, "bad", extra=[planted("bad", WRONG[name])], trace=False, budget="30s")
    assert found["bad"].outcome in {"wrong", "not faster"}, found["bad"]
    assert not plan
    if name not in {"cached by content", "tires after 60 calls"}:  # which may be no faster by the real clock
        assert found["bad"].outcome == "wrong", found["bad"]


def test_a_kernel_that_knows_only_the_example_is_rejected_on_a_card() -> None:
    module = nn.Linear(1024, 1024).cuda().eval().requires_grad_(False)
    x = torch.randn(512, 1024, device="cuda")
    _, found = tried(module, x, "bad", extra=[planted("bad", programs.only_the_example(x))], trace=False)
    assert found["bad"].outcome == "wrong"


def test_a_captured_graph_is_kept_shown_by_the_trace_and_follows_exchanged_weights() -> None:
    module, x = launch_bound()
    expected = module(x)
    plan, found = tried(module, x, "cuda-graph", budget="30s")
    attempt = found["cuda-graph"]
    assert attempt.outcome == "kept", attempt
    assert [shown.seen for shown in attempt.shown] == [True], attempt.shown
    assert attempt.numeric_class == "exact"
    assert torch.equal(module(x), expected), "optimizing changes nothing by itself"
    with plan:
        assert torch.equal(module(x), expected)
        kept = module(x)
        other = module(2 * x)
        assert torch.equal(kept, expected), "a later call does not change an earlier result"
        assert not torch.equal(other, expected)
        assert module(x[:5]).shape == (5, 64)
        assert plan.counts()["cuda-graph"]["shape"] == 1
        state = {name: value * 0.5 for name, value in module.state_dict().items()}
        module.load_state_dict(state, assign=True)
        captured = module(x)
    assert torch.equal(captured, module(x)), "weights that were exchanged are read from where they are"


def test_kernels_and_compiled_code_are_captured_too() -> None:
    pytest.importorskip("triton")
    module, x = launch_bound()
    expected = module(x)
    names = ["cuda-graph", "cuda-graph+kernel-layer_norm", "compile-cuda-graph"]
    plan, found = tried(module, x, *names, budget="60s", trace=False)
    for name in names:
        assert found[name].outcome in {"kept", "not faster"}, found[name]
        assert found[name].checks, found[name]
    assert len(plan.report.winner) == 1, "a plan has one engine"
    with plan:
        assert torch.allclose(module(x), expected, atol=1e-4)
    assert torch.equal(module(x), expected)
