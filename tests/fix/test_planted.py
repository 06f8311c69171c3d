"""The gates, shown failing: every planted wrong kernel and every planted fake speed is rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.gate.correctness import Correctness, Result
from lanewise.fix.model import Attempt
from lanewise.fix.optimize import optimize
from lanewise.fix.plans.plan import Plan
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.show.plan.plan_text import plan_sentence
from tests.fix import programs
from tests.fix.conftest import WorkClock
from tests.fix.programs import planted

# Every verdict takes a second or two of checks.
pytestmark = pytest.mark.slow


def judged(target: Any, inputs: Any, candidate: Candidate, **options: Any) -> tuple[Plan, Attempt]:
    """What becomes of one candidate."""
    plan = optimize(target, inputs, budget="40s", only=[candidate.name], extra=[candidate], trace=False, **options)
    (attempt,) = plan.report.attempts
    return plan, attempt


def checked(module: nn.Module, inputs: Any, forward: Callable[..., Any]) -> Result:
    """What the correctness gate alone says."""
    subject = make_subject(module, inputs)
    state = State(subject)
    candidate = planted("other", forward)
    return Correctness(subject, state, seconds=2).check(candidate, candidate.build(subject))


@pytest.fixture
def square(work_clock: WorkClock) -> nn.Module:
    """A product that takes long enough for a shortcut to be much faster."""
    return programs.Square(work_clock).eval().requires_grad_(False)


X = torch.Generator().manual_seed(1)

WRONG = {
    "transposed weight": programs.transposed_weight,
    "zeros": programs.zeros,
    "off-by-one tail": programs.off_by_one_tail,
    "dtype downgrade": programs.dtype_downgrade,
    "half downgrade": programs.half_downgrade,
    "other dtype": programs.other_dtype,
    "NaN swallowed": programs.nan_swallowed,
    "input changed": programs.input_changed,
    "aliased": programs.aliased,
    "uninitialised": programs.uninitialised,
    "half the rows": programs.half_the_rows,
    "stale output": programs.stale_output,
    "cached by object": programs.cached_by_object,
    "cached by content": programs.cached_by_content,
    "tires after 60 calls": programs.tires(60),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_and_fake_speed_are_rejected(square: nn.Module, name: str) -> None:
    x = torch.randn(128, 256, generator=X)
    before = square(x)
    plan, attempt = judged(square, x, planted("bad", WRONG[name]))
    assert attempt.outcome == "wrong", (attempt.reason, attempt.timing)
    assert attempt.reason
    assert not plan
    assert torch.equal(square(x), before)


@pytest.mark.parametrize("name", ["stale output", "cached by object", "tires after 60 calls"])
def test_inputs_that_were_drawn_with_the_gates_own_seed_hide_nothing(square: nn.Module, name: str) -> None:
    """The most common seed of all: other values have to differ from those that were recorded."""
    x = torch.randn(128, 256, generator=torch.Generator().manual_seed(0))
    _, attempt = judged(square, x, planted("bad", WRONG[name]))
    assert attempt.outcome == "wrong", (attempt.reason, attempt.timing)


def test_results_kept_by_content_are_found_out_by_new_inputs(square: nn.Module) -> None:
    x = torch.randn(128, 256, generator=X)
    _, attempt = judged(square, x, planted("bad", programs.cached_by_content))
    assert attempt.reason == "it saves time only on inputs that it was called with before"
    assert attempt.timing is not None
    assert attempt.timing.ratio > 5, "inputs that repeat are where the speed is"


@pytest.mark.parametrize("bad", [programs.tires(400), programs.cached_by_content], ids=["tires", "cached"])
def test_fake_speed_is_never_kept_by_the_real_clock_either(bad: Callable[..., Any]) -> None:
    """Where the machine is busy it may not be found out: then it is not proven faster either."""
    x = torch.randn(128, 256, generator=X)
    plan, attempt = judged(nn.Linear(256, 256).eval().requires_grad_(False), x, planted("bad", bad))
    assert attempt.outcome in {"wrong", "not faster"}
    assert not plan


def test_a_kernel_that_knows_only_the_example_is_rejected(square: nn.Module) -> None:
    x = torch.randn(128, 256, generator=X)
    plan, attempt = judged(square, x, planted("bad", programs.only_the_example(x)))
    assert attempt.outcome == "wrong"
    assert not plan


def test_attention_without_its_mask_is_rejected() -> None:
    module = programs.Attention().eval().requires_grad_(False)
    x = torch.randn(2, 16, 32, generator=X)
    assert not checked(module, x, programs.missing_mask).passed


@pytest.mark.parametrize(
    "forward",
    [programs.detached, programs.wrong_gradient, programs.gradient_needs_contiguous],
    ids=["detached", "wrong gradient", "strides of the gradient ignored"],
)
def test_wrong_gradients_are_rejected(square: nn.Module, forward: Callable[..., Any]) -> None:
    x = torch.randn(64, 256, generator=X).requires_grad_()
    _, attempt = judged(square.train().requires_grad_(), x, planted("bad", forward))
    assert attempt.outcome == "wrong"


def test_a_norm_that_does_not_keep_its_statistics_is_rejected() -> None:
    module = nn.BatchNorm1d(32).train()
    found = checked(module, torch.randn(64, 32, generator=X), programs.buffer_skipped)
    assert not found.passed
    assert "buffer" in found.reason


def test_a_training_step_that_skips_updates_is_rejected() -> None:
    module = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    before = [parameter.detach().clone() for parameter in module.parameters()]
    _, attempt = judged(step, torch.randn(16, 32, generator=X), programs.skipped_update(optimizer))
    assert attempt.outcome == "wrong"
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_a_right_and_faster_way_is_kept(work_clock: WorkClock) -> None:
    """The gates let the real thing through."""
    x = torch.randn(64, 64, generator=X)
    plan, attempt = judged(programs.Repeats(work_clock).eval(), x, planted("good", programs.done_once))
    assert attempt.outcome == "kept", attempt
    assert attempt.numeric_class == "exact"
    assert plan
    assert plan.report.against_eager is not None
    assert 27 < plan.report.against_eager.low <= plan.report.against_eager.high < 31


def test_what_is_clearly_slower_at_first_sight_is_not_proven_at_all(work_clock: WorkClock) -> None:
    module = programs.Square(work_clock).eval().requires_grad_(False)

    def twice(module: Any, original: Any) -> Any:
        return lambda x: (original(x), original(x))[1]

    plan, attempt = judged(module, torch.randn(64, 256, generator=X), planted("slow", twice))
    assert attempt.outcome == "not faster"
    assert plan_sentence(plan.report).endswith("0 of 1 candidates were right and timed, 1 slower at first sight.")
    assert attempt.reason.startswith("slower: 0.5")
    assert not attempt.checks
    assert "not verified" in attempt.notes[0]


def test_the_same_program_under_another_name_is_not_faster(square: nn.Module) -> None:
    x = torch.randn(64, 256, generator=X)
    _, attempt = judged(square, x, planted("same", lambda module, original: original))
    assert attempt.outcome == "not faster"
    assert attempt.numeric_class == "exact"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_on_a_stream_that_nobody_waits_for_is_rejected() -> None:
    def other_stream(module: Any, original: Any) -> Any:
        stream = torch.cuda.Stream()

        def forward(x: torch.Tensor) -> torch.Tensor:
            with torch.cuda.stream(stream):
                return original(x)

        return forward

    module = nn.Linear(2048, 2048).cuda().eval().requires_grad_(False)
    found = checked(module, torch.randn(2048, 2048, device="cuda"), other_stream)
    assert not found.passed


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("forward", "right"), [(programs.rounded_once, True), (programs.added_noise, False)])
def test_half_precision_is_held_to_the_error_that_the_program_itself_has(
    one_thread: None, forward: Callable[..., Any], right: bool, training: bool
) -> None:
    tokens = torch.randint(0, 50, (4, 16), generator=X)
    found = checked(programs.Half().train(training).requires_grad_(training), tokens, forward)
    assert found.passed == right, found.reason
    assert found.numeric_class == ("same precision" if right else "changes semantics")


@pytest.mark.parametrize(("until", "right"), [(-1, True), (500, False)])
def test_under_autocast_another_order_of_rounding_passes(one_thread: None, until: int, right: bool) -> None:
    module = nn.Linear(512, 64).eval().requires_grad_(False)
    subject = make_subject(module, torch.randn(32, 512, generator=X))
    candidate = planted("other", lambda module, original: original)
    found = Correctness(subject, State(subject), seconds=2).check(candidate, programs.UnderAutocast(module, until))
    problems = [check for check in found.checks if not check.passed and "under autocast" in check.rule]
    assert (not problems) == right, found.reason
