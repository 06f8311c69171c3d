"""Candidates with the errors that people make: each is rejected by the gate, for its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import logging
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from lanewise.fix.candidates.candidate import Candidate, Variant
from lanewise.fix.gate.correctness import Correctness, Result
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from tests.fix.programs import planted

pytestmark = pytest.mark.usefixtures("one_thread")

Fast = Callable[[Any, Callable[..., Any]], Callable[..., Any]]


def judged(module: nn.Module, inputs: Any, candidate: Candidate) -> Result:
    """What the gate says, after the first calls that a candidate always gets."""
    subject = make_subject(module, inputs)
    state = State(subject)
    gate = Correctness(subject, state, seconds=0)
    variant = candidate.build(subject)
    variant.enable()
    if isinstance(variant, ForwardPatch):
        variant.dispatch.learning = True
    for call in subject.calls:
        subject.run(call)
    variant.disable()
    state.restore()
    return gate.check(candidate, variant)


def linear(module: Any, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, module.weight, module.bias)


def inference() -> nn.Module:
    return nn.Linear(16, 16).eval().requires_grad_(False)


def training() -> nn.Module:
    return nn.Linear(16, 16).train()


X = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, self.table.clone()


class Mixture(nn.Module):
    """Leaves a loss for the trainer beside its result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.aux_loss: Any = None
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.aux_loss = y.square().mean()
        self.seen.append(1.0)
        return y


class Squares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight).square()


class Pair(Squares):
    def forward(self, x: torch.Tensor) -> Any:
        y = x @ self.weight
        return y, y * 2


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.features: list[torch.Tensor] = []
        features = self.features
        self.layer.register_forward_hook(lambda module, given, result: features.append(result))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


class Tagged(torch.Tensor):
    pass


class Tags(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).as_subclass(Tagged)


class Refuses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if bool((tokens >= 50).any()):
            raise ValueError("unknown token")
        return self.table(tokens)


class Finite(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not bool(torch.isfinite(x).all()):
            raise ValueError("not finite")
        return super().forward(x)


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(~mask, 0.0)


class Reciprocal(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 / x


class Probabilities(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 30).softmax(-1)


class Mixed(nn.Module):
    """Two shapes of calls, both recorded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh()


class CopiedWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any, kept_w: Any, kept_b: Any) -> Any:
        ctx.save_for_backward(x, kept_w)
        return F.linear(x, kept_w, kept_b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        return grads[0] @ w, grads[0].t() @ x, grads[0].sum(0), None, None


class Replaces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any) -> Any:
        ctx.save_for_backward(x, w)
        ctx.held = w, b
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        for one in ctx.held:
            one.grad = None
        return grads[0] @ w, grads[0].t() @ x, grads[0].sum(0)


class Unnoticed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any) -> Any:
        ctx.held = x.detach(), w.detach()
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.held
        return grads[0] @ w, grads[0].t() @ x, grads[0].sum(0)


class Once(Unnoticed):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.held
        ctx.held = None
        return grads[0] @ w, grads[0].t() @ x, grads[0].sum(0)


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return F.linear(x, w).square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        g = grads[0] * 2 * (x @ w.t())
        return g @ w, g.t() @ x


class WrongSecond(OnceDifferentiable):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        g = grads[0] * 2 * (x @ w.detach().t())
        return g @ w, g.t() @ x


class BothNeeded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        y = x @ w
        return y, y * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        g = grads[0] + 2 * grads[1]
        return g @ w.t(), x.t() @ g


def with_weights(use: Callable[..., Any]) -> Fast:
    return lambda module, original: lambda x: use(x, module.weight, module.bias)


def copied(module: Any, original: Any) -> Any:
    w, b = module.weight.detach().clone(), module.bias.detach().clone()
    return lambda x: F.linear(x, w, b)


def trained_with_copies(module: Any, original: Any) -> Any:
    w, b = module.weight.detach().clone(), module.bias.detach().clone()
    return lambda x: CopiedWeights.apply(x, module.weight, module.bias, w, b)


def ring(module: Any, original: Any) -> Any:
    made: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = linear(module, x)
        if len(made) < 30:
            made.append(y)
            return y
        made.append(made.pop(0).copy_(y))
        return made[-1]

    return forward


def settings_left(module: Any, original: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        torch.set_flush_denormal(True)
        torch.set_float32_matmul_precision("medium")
        return linear(module, x)

    return forward


def keeps(module: Any, original: Any) -> Any:
    kept: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        kept.append(torch.zeros(4))
        return linear(module, x)

    return forward


def shared_scratch(module: Any, original: Any) -> Any:
    scratch = torch.empty(8, 16)

    def forward(x: torch.Tensor) -> torch.Tensor:
        scratch.copy_(x)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(1e-4)
        return linear(module, scratch)

    return forward


def huge_storage(module: Any, original: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = linear(module, x)
        return torch.empty(1 << 20)[: y.numel()].view_as(y).copy_(y)

    return forward


def near_enough(module: Any, original: Any) -> Any:
    last: list[Any] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        if last and torch.allclose(last[0], x, rtol=1e-2, atol=1e-2):
            return last[1].clone()
        last[:] = [x.clone(), linear(module, x)]
        return last[1].clone()

    return forward


def by_some_values(module: Any, original: Any) -> Any:
    known: dict[Any, Any] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        key = float(x.flatten()[0]), float(x.flatten()[-1])
        if key not in known:
            known[key] = linear(module, x)
        return known[key].clone()

    return forward


def other_shape_wrong(module: Any, original: Any) -> Any:
    kept: dict[Any, Any] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 8:
            return x.tanh()
        y = kept.setdefault("y", torch.empty_like(x))
        torch.tanh(x, out=y)
        return y

    return forward


def no_small(module: Any, original: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = (x * 30).softmax(-1)
        return torch.where(y < 1e-9, torch.zeros_like(y), y)

    return forward


A: Any = X.clone().requires_grad_()

PLANTS: dict[str, tuple[Callable[[], nn.Module], Any, Fast, str]] = {
    "weights copied when built": (inference, X, copied, "weights are read"),
    "training with copied weights": (training, X, trained_with_copies, "weights are read"),
    "a parameter as the result": (
        lambda: Table().eval(),
        X,
        lambda m, o: lambda x: (x + 1, m.table.detach()),
        "share memory",
    ),
    "a ring of thirty buffers": (inference, X, ring, "results are kept"),
    "a loss left in an attribute is missing": (
        lambda: Mixture().train(),
        X,
        lambda m, o: m.layer.forward,
        "is no longer written",
    ),
    "hooks of parts skipped": (
        lambda: Hooked().eval().requires_grad_(False),
        X,
        lambda m, o: lambda x: linear(m.layer, x).relu(),
        "features is no longer written",
    ),
    "random numbers consumed": (inference, X, lambda m, o: lambda x: (torch.rand(1), o(x))[1], "random numbers"),
    "settings left changed": (inference, X, settings_left, "settings of the process"),
    "result in another order of memory": (
        inference,
        X,
        lambda m, o: lambda x: (m.weight @ x.t()).t() + m.bias,
        "lies in memory",
    ),
    "class of the result lost": (lambda: Tags().eval(), X, lambda m, o: lambda x: x * 2, "is of class"),
    "result in a huge storage": (inference, X, huge_storage, "bytes alive"),
    "errors swallowed": (
        lambda: Refuses().eval().requires_grad_(False),
        torch.randint(0, 50, (4, 8)),
        lambda m, o: lambda t: F.embedding(t.clamp(max=49), m.table.weight),
        "raises ValueError",
    ),
    "values that are refused": (
        lambda: Finite(16, 16).eval().requires_grad_(False),
        X,
        lambda m, o: lambda x: linear(m, x),
        "raises ValueError",
    ),
    "scratch shared by threads": (inference, X, shared_scratch, "threads"),
    "gradients replace": (training, X, with_weights(Replaces.apply), "gradients add"),
    "changed in between unnoticed": (training, X, with_weights(Unnoticed.apply), "changed before the backward"),
    "backward works once": (training, X, with_weights(Once.apply), "backward twice"),
    "second derivatives missing": (
        lambda: Squares().train(),
        A,
        lambda m, o: lambda x: OnceDifferentiable.apply(x, m.weight),
        "second derivatives",
    ),
    "second derivatives wrong": (
        lambda: Squares().train(),
        A,
        lambda m, o: lambda x: WrongSecond.apply(x, m.weight),
        "second derivatives",
    ),
    "one of two results used": (
        lambda: Pair().train(),
        X,
        lambda m, o: lambda x: BothNeeded.apply(x, m.weight),
        "alone",
    ),
    "a mask taken for a constant": (
        lambda: Masked().eval(),
        (X, torch.ones(8, 16, dtype=torch.bool)),
        lambda m, o: lambda x, mask: x.clone(),
        "output 0",
    ),
    "infinity of another sign": (
        lambda: Reciprocal().eval(),
        X,
        lambda m, o: lambda x: 1 / (x + 0.0),
        "infinity",
    ),
    "small probabilities dropped": (lambda: Probabilities().eval(), X, no_small, "small values"),
    "nearly the same inputs": (inference, X, near_enough, "the last call with"),
    "a few values for all": (inference, X, by_some_values, "the last call with"),
    "another recorded shape": (
        lambda: Mixed().eval(),
        [X, X[:4]],
        other_shape_wrong,
        "results are kept",
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_an_error_is_found_for_its_reason(name: str) -> None:
    make, inputs, fast, reason = PLANTS[name]
    module = make()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    found = judged(module, inputs, planted("bad", fast))
    assert not found.passed
    assert reason in f"{[check.rule + ': ' + check.detail for check in found.checks if not check.passed]}"
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert torch.get_float32_matmul_precision() == "highest"
    assert bool(torch.tensor(1e-40) * 1.0)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (inference, X),
        (training, X),
        (lambda: Table().eval(), X),
        (lambda: Mixture().train(), X),
        (lambda: Hooked().eval().requires_grad_(False), X),
        (lambda: Tags().eval(), X),
        (lambda: Finite(16, 16).eval().requires_grad_(False), X),
        (lambda: Squares().train(), A),
        (lambda: Pair().train(), X),
        (lambda: Mixed().eval(), [X, X[:4]]),
        (lambda: nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).train(), X),
        (lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).train(), X),
    ],
)
def test_the_program_itself_passes_every_check(make: Callable[[], nn.Module], inputs: Any) -> None:
    found = judged(make(), inputs, planted("same", lambda module, original: original))
    assert found.passed, found.reason
    assert found.numeric_class == "exact"


class Held(nn.Module):
    """Tensors beside parameters: a buffer of zeros, attributes, and one in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("moved", torch.zeros(16))
        self.shift, self.shifts = torch.randn(16), [torch.randn(16)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.moved + self.shift + self.shifts[0]


class Sent(nn.Module):
    def forward(self, given: Any) -> torch.Tensor:
        return (given["x"] if isinstance(given, dict) else given.x) * 2


class Clips(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return F.linear(x, w)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        g = grads[0].clamp(-100, 100)
        return g @ w, g.t() @ x


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight)


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, 1


def keeping(name: str) -> Fast:
    """Copies one of the tensors that `Held` holds when it is built."""

    def build(module: Any, original: Any) -> Any:
        kept = {"moved": module.moved, "shift": module.shift, "shifts": module.shifts[0]}
        kept[name] = kept[name].clone()

        def forward(x: torch.Tensor) -> torch.Tensor:
            now = {"moved": module.moved, "shift": module.shift, "shifts": module.shifts[0], name: kept[name]}
            return module.layer(x) + now["moved"] + now["shift"] + now["shifts"]

        return forward

    return build


def first(effect: Callable[[Any, Any], Any]) -> Fast:
    """Does something else before the original."""
    return lambda module, original: lambda x: (effect(module, x), original(x))[1]


def held_module() -> nn.Module:
    return Held().eval().requires_grad_(False)


def set_again(module: Any, x: Any) -> None:
    module.weight.data = module.weight.data.clone()


MORE: dict[str, tuple[Callable[[], nn.Module], Any, Fast, str]] = {
    "a buffer of zeros copied": (held_module, X, keeping("moved"), "weights are read"),
    "an attribute copied": (held_module, X, keeping("shift"), "weights are read"),
    "a tensor in a list copied": (held_module, X, keeping("shifts"), "weights are read"),
    "seeds again": (inference, X, first(lambda m, x: torch.manual_seed(0)), "random numbers"),
    "NumPy raises": (inference, X, first(lambda m, x: np.seterr(all="raise")), "settings of the process"),
    "everything is logged": (
        inference,
        X,
        first(lambda m, x: logging.getLogger().setLevel(logging.DEBUG)),
        "settings of the process",
    ),
    "a profile function stays": (
        inference,
        X,
        first(lambda m, x: sys.setprofile(lambda *_: None)),
        "settings of the process",
    ),
    "parameters unfrozen": (
        inference,
        X,
        lambda m, o: lambda x: (m.weight.requires_grad_(), linear(m, x).detach())[1],
        "parameters are written to",
    ),
    "a gradient left behind": (
        inference,
        X,
        first(lambda m, x: setattr(m.weight, "grad", torch.zeros_like(m.weight))),
        "parameters are written to",
    ),
    "a parameter moved to other memory": (inference, X, first(set_again), "parameters are written to"),
    "a number of another type": (
        lambda: Counted().eval(),
        X,
        lambda m, o: lambda x: (x * 2, True),
        "not a tensor differs",
    ),
    "an argument's dictionary written to": (
        lambda: Sent().eval(),
        ({"x": X},),
        lambda m, o: lambda given: (given.update(seen=1), given["x"] * 2)[1],
        "what the arguments hold",
    ),
    "an argument's object written to": (
        lambda: Sent().eval(),
        (SimpleNamespace(x=X, seen=0),),
        lambda m, o: lambda given: (setattr(given, "seen", 1), given.x * 2)[1],
        "what the arguments hold",
    ),
    "a few probabilities clamped": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.Sigmoid()).eval().requires_grad_(False),
        X,
        lambda m, o: lambda x: torch.sigmoid(linear(m[0], x)).clamp(1e-7, 1 - 1e-7),
        "small values",
    ),
    "gradients clipped": (
        lambda: Product().train(),
        A,
        lambda m, o: lambda x: Clips.apply(x, m.weight),
        "of large gradients",
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_more_that_is_left_copied_or_changed_is_found_for_its_reason(name: str) -> None:
    make, inputs, fast, reason = MORE[name]
    try:
        found = judged(make(), inputs, planted("bad", fast))
    finally:
        sys.setprofile(None)
        np.seterr(all="warn", under="ignore")
        logging.getLogger().setLevel(logging.WARNING)
    assert reason in f"{[check.rule + ': ' + check.detail for check in found.checks if not check.passed]}"


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (held_module, X),
        (lambda: Held().train(), A),
        (lambda: nn.Sequential(nn.Linear(16, 16), nn.Sigmoid()).eval().requires_grad_(False), X),
        (lambda: Sent().eval(), (SimpleNamespace(x=X, seen=0, table=np.zeros(5000)),)),
        (lambda: Product().train(), A),
    ],
)
def test_programs_of_these_kinds_pass_themselves(make: Callable[[], nn.Module], inputs: Any) -> None:
    found = judged(make(), inputs, planted("same", lambda module, original: original))
    assert found.passed, found.reason


def test_memory_that_grows_is_found_after_timing() -> None:
    subject = make_subject(inference(), X)
    gate = Correctness(subject, State(subject), seconds=0)
    candidate = planted("bad", keeps)
    variant = candidate.build(subject)
    assert not gate.check(candidate, variant, again=True).passed


class Loose:
    """Exchanges forward without a guard."""

    def __init__(self, module: Any, forward: Callable[..., Any]) -> None:
        self._module, self._forward = module, forward

    def enable(self) -> None:
        self._module.forward = self._forward

    def disable(self) -> None:
        vars(self._module).pop("forward", None)


def half_autocast() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16


LOOSE: dict[str, tuple[Callable[[Any, torch.Tensor, torch.Tensor], Any], str]] = {
    "in inference mode": (lambda m, x, y: y * (1 + torch.is_inference_mode_enabled()), "inference mode"),
    "batch of one": (lambda m, x, y: y if x.shape[0] != 1 else y * 0, "one row only"),
    "batch of none": (lambda m, x, y: y if x.shape[0] else torch.zeros(1, 16), "no rows"),
    "large batches": (lambda m, x, y: y if x.shape[0] < 60 else y * 2, "eight times"),
    "half autocast": (lambda m, x, y: y * 2 if half_autocast() else y, "half precision"),
    "misaligned memory": (lambda m, x, y: y * (1 + (x.data_ptr() % 16 != 0)), "not aligned"),
    "a copy": (lambda m, x, y: y, "a copy"),
}


@pytest.mark.parametrize("name", LOOSE)
@pytest.mark.parametrize("allowed", ["", "changes something"])
def test_without_a_guard_other_calls_are_found_wrong_even_of_what_was_allowed(name: str, allowed: str) -> None:
    change, reason = LOOSE[name]
    module = inference()

    def forward(x: torch.Tensor) -> torch.Tensor:
        return change(module, x, linear(module, x))

    def build(subject: Any) -> Variant:
        return Loose(module, forward)

    found = judged(module, X, Candidate("bad", "planted", "whole", "planted", build, refused_unless_allowed=allowed))
    assert [check for check in found.checks if not check.passed and reason in check.rule], found.reason


def test_what_is_not_taken_off_is_found_and_taken_off() -> None:
    module = inference()

    class Stays(Loose):
        def enable(self) -> None:
            module.mark = 1
            module.register_forward_pre_hook(lambda *_: None)

        def disable(self) -> None:
            pass

    candidate = Candidate("bad", "planted", "whole", "planted", lambda subject: Stays(module, module.forward))
    found = judged(module, X, candidate)
    assert not found.passed
    assert not hasattr(module, "mark")
    assert not module._forward_pre_hooks
