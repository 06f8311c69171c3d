"""What only a CUDA device can show: streams, captured graphs, fused kernels inside of them; and the planted fakes again."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.gate.inputs import other_values
from lanewise.fix.gate.speed.clocks import sm_clock
from lanewise.fix.model import Attempt
from lanewise.fix.optimize import optimize
from lanewise.fix.plans.plan import Plan
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.time_budget import Budget
from lanewise.fix.trial.credit import credit
from lanewise.fix.trial.ledger import Kept, Ledger
from lanewise.fix.trial.prepare import first_calls
from lanewise.fix.trial.workbench import make_bench
from lanewise.fix.work.worklist import WorkList
from tests.fix import programs
from tests.fix.programs import planted
from tests.fix.test_planted import WRONG, checked

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


SLOWER = {"cached by content", "tires after 60 calls"}
"""May be no faster by the real clock, and then nothing is said about their results."""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_and_fake_speed_are_rejected_on_a_card(name: str) -> None:
    module = nn.Linear(1024, 1024).cuda().eval().requires_grad_(False)
    x = torch.randn(512, 1024, device="cuda")
    if name not in SLOWER:
        found = checked(module, x, WRONG[name])
        assert not found.passed
        # What is off by little is called less precise; it is rejected all the same.
        assert found.numeric_class in {"less precise", "changes semantics"}
    plan, attempts = tried(module, x, "bad", extra=[planted("bad", WRONG[name])], trace=False, budget="30s")
    assert attempts["bad"].outcome in {"wrong", "not faster"}, attempts["bad"]
    assert not plan


def test_the_values_that_inputs_are_exchanged_with_are_others_whatever_seed_they_were_drawn_with() -> None:
    """The generator of a card with seed 0: what a test, or a user, most likely has."""
    torch.manual_seed(0)
    x = torch.randn(512, 1024, device="cuda")
    assert not torch.equal(other_values(((x,), {}))[0][0], x)


def test_a_kernel_that_knows_only_the_example_is_rejected_on_a_card() -> None:
    module = nn.Linear(1024, 1024).cuda().eval().requires_grad_(False)
    x = torch.randn(512, 1024, device="cuda")
    _, found = tried(module, x, "bad", extra=[planted("bad", programs.only_the_example(x))], trace=False)
    assert found["bad"].outcome == "wrong"


def test_a_captured_graph_is_kept_shown_by_the_trace_and_follows_exchanged_weights() -> None:
    module, x = launch_bound()
    expected = module(x)
    plan, found = tried(module, x, "cuda-graph", budget="60s")
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


def test_the_clock_of_the_card_is_read() -> None:
    assert 100 < sm_clock(torch.device("cuda", 0))() < 5000


def test_a_graph_writes_to_no_memory_that_was_given_back() -> None:
    """Long sums are split over the card and meet in a workspace, which torch's own graphs give back."""
    module = nn.Linear(16384, 64).cuda().eval().requires_grad_(False)
    x = torch.randn(16, 16384, device="cuda")
    subject = make_subject(module, x)
    (candidate,) = [one for one in catalogue(subject, WorkList()) if one.name == "cuda-graph"]
    graph: Any = candidate.build(subject)
    graph.enable()
    graph.dispatch.learning = True
    expected = module(x)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.ones(1 << 23, device="cuda") for _ in range(8)]
    for _ in range(3):
        assert torch.equal(module(x), expected)
    assert graph.dispatch.hits == 4
    graph.disable()
    assert all(bool((other == 1).all()) for other in others)


def test_kernels_and_compiled_code_are_captured_too() -> None:
    pytest.importorskip("triton")
    module, x = launch_bound()
    expected = module(x)
    names = ["cuda-graph", "cuda-graph+kernel-layer_norm", "compile-cuda-graph"]
    plan, found = tried(module, x, *names, budget="60s", trace=False)
    for name in names:
        assert found[name].outcome in {"kept", "surpassed", "not faster"}, found[name]
    assert len(plan.report.winner) == 1, "a plan has one engine"
    subject = make_subject(module, x)
    gate = Correctness(subject, State(subject), seconds=2)
    for name in names:
        candidate = next(one for one in catalogue(subject, WorkList()) if one.name == name)
        assert gate.check(candidate, candidate.build(subject)).passed, name
    with plan:
        assert torch.allclose(module(x), expected, atol=1e-4)
    assert torch.equal(module(x), expected)


def test_a_layout_under_a_graph_is_shown_by_the_trace_without_the_graph() -> None:
    """A replay has no operators: what a part of the plan does is seen where it runs by itself."""
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
    module = nn.Sequential(*layers).cuda().eval().requires_grad_(False)
    x = torch.randn(8, 64, 32, 32, device="cuda")
    subject = make_subject(module, x)
    state = State(subject)
    bench = make_bench(subject, state, Budget(60), goal="latency", allow=[])
    ledger = Ledger()
    for name in ("channels-last", "cuda-graph"):
        candidate = next(one for one in catalogue(subject, bench.work) if one.name == name)
        ledger.keep(Kept(candidate, candidate.build(subject)))
        ledger.attempts.append(Attempt(name, "", "", "", "kept", ""))
        first_calls(bench, ledger.plan)
    credit(bench, ledger)
    assert ledger.names == ["channels-last", "cuda-graph"], ledger.attempts
    assert all(shown.seen for attempt in ledger.attempts for shown in attempt.shown)
