"""Errors of kinds that the gate did not see at first: values at jumps, marks of tensors, counters, complex arguments."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from tests.fix.programs import planted
from tests.fix.test_plants import A, X, first, inference, judged, linear

pytestmark = pytest.mark.usefixtures("one_thread")

Z = torch.complex(X, X.flip(0))


class Calls(nn.Module):
    """A function of its argument."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def calls(function: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    return lambda: Calls(function).eval()


def tagged(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.scale = 3.0  # type: ignore[attr-defined]
    return y


class Middle(nn.Module):
    """Keeps what is in the middle, with its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.middle = nn.Linear(16, 16), torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.middle = self.layer(x)
        if self.middle.requires_grad:
            self.middle.retain_grad()
        return self.middle.relu()


def forgets_the_gradient(module: Any, original: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        module.middle = module.layer(x)
        return module.middle.relu()

    return forward


class Counts(nn.Module):
    """Its result depends on a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.step


def averages_alike(module: Any, original: Any) -> Any:
    """Batch norm whose average over all batches is that of the first one."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        module.num_batches_tracked.add_(1)
        held = (module.running_mean, module.running_var, module.weight, module.bias)
        return F.batch_norm(x, *held, training=True, momentum=1.0, eps=module.eps)

    return forward


def in_inference_mode(module: Any, original: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return linear(module, x)

    return forward


@torch.no_grad()
def writes_the_same(module: Any, x: torch.Tensor) -> None:
    x.mul_(1)


PLANTS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[Any, Any], Any], str]] = {
    "halves rounded up": (
        calls(lambda x: (2 * x).round()),
        X,
        lambda m, o: lambda x: (2 * x + 0.5).floor(),
        "quarters",
    ),
    "above, for at least": (
        calls(lambda x: x * (x >= 0.5)),
        X,
        lambda m, o: lambda x: x * (x > 0.5),
        "quarters",
    ),
    "an attribute of a result lost": (calls(tagged), X, lambda m, o: lambda x: x * 2, "marked by nothing, not scale"),
    "a mark of what is left lost": (lambda: Middle().train(), A, forgets_the_gradient, "not retain_grad"),
    "an argument written to": (inference, X, first(writes_the_same), "arguments are written to"),
    "an attribute on an argument": (inference, X, first(lambda m, x: setattr(x, "seen", 1)), "marked seen"),
    "an attribute on a parameter": (inference, X, first(lambda m, x: setattr(m.weight, "seen", 1)), "marked seen"),
    "results of inference mode": (inference, X, in_inference_mode, "marked is_inference"),
    "a result to be conjugated": (
        calls(lambda z: (z * z).conj().resolve_conj()),
        Z,
        lambda m, o: lambda z: (z * z).conj(),
        "marked is_conj",
    ),
    "large complex numbers": (
        calls(lambda z: z * z),
        Z,
        lambda m, o: lambda z: torch.where(z.real < 8, z * z, z),
        "output 0",
    ),
    "a counter for a constant": (lambda: Counts().eval(), X, lambda m, o: lambda x: x / 3, "weights are read"),
    "an average of one batch": (
        lambda: nn.BatchNorm1d(16, momentum=None).train(),
        A,
        averages_alike,
        "buffer running_mean",
    ),
    "the collector's thresholds": (
        inference,
        X,
        first(lambda m, x: gc.set_threshold(10**6)),
        "thresholds of garbage collection",
    ),
}


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("name", PLANTS)
def test_it_is_found_for_its_reason(name: str) -> None:
    make, inputs, fast, reason = PLANTS[name]
    found = judged(make(), inputs, planted("bad", fast))
    assert reason in f"{[check.rule + ': ' + check.detail for check in found.checks if not check.passed]}"


@pytest.mark.parametrize("name", PLANTS)
def test_the_program_itself_passes(name: str) -> None:
    make, inputs, _, _ = PLANTS[name]
    found = judged(make(), inputs, planted("same", lambda module, original: original))
    assert found.passed, found.reason


def test_rounding_at_jumps_is_no_fault() -> None:
    """Two orders of adding what is summed before a comparison."""
    net = calls(lambda x: (x.cumsum(-1) / 3).relu())()
    fast = planted("other order", lambda m, o: lambda x: (torch.cumsum(x.double(), -1) / 3).float().relu())
    found = judged(net, X, fast)
    assert found.passed, found.reason
