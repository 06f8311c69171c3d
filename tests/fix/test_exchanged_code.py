"""What a module's code looks up when it runs is part of the guard: methods, globals, functions, hooks of every module."""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as every_module

from lanewise.fix.patch import ForwardPatch
from tests.fix.test_ground import patched

X = torch.ones(2, 4)

SWITCH, SCALE, OPTIONS, FACTORS, CONFIG = True, 2.0, {"shift": 1.0}, [1.0], SimpleNamespace(gain=1.5)


class Settings:
    temperature = 1.0


def helper(x: torch.Tensor) -> torch.Tensor:
    return inner_helper(x) * SCALE


def inner_helper(x: torch.Tensor) -> torch.Tensor:
    return x * FACTORS[0]


class Curve:
    """Called, and an object with a number in it."""

    def __init__(self) -> None:
        self.slope = 2.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.slope


class Base(nn.Module):
    factor = 1.0

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Part(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.curve, self.times = Curve(), functools.partial(torch.mul, other=torch.tensor(2.0))
        self.last, self.raw = deque([1.0], maxlen=3), bytearray(b"a")

    @property
    def heat(self) -> float:
        return Settings.temperature

    @staticmethod
    def moved(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.middle(F.gelu(self.layer(x))) * self.heat * self.last[0] * len(self.raw)
        y = self.times(self.curve(y))
        if SWITCH:
            y = self.moved(y)
        return helper(y) * CONFIG.gain + OPTIONS["shift"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Nothing(Part):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0


def set_global(name: str, value: Any) -> Callable[[Net, pytest.MonkeyPatch], Any]:
    return lambda net, patch: patch.setitem(globals(), name, value)


def set_on(owner: Any, name: str, value: Any) -> Callable[[Net, pytest.MonkeyPatch], Any]:
    return lambda net, patch: patch.setattr(owner, name, value)


def set_factor(net: Net, patch: pytest.MonkeyPatch) -> Any:
    FACTORS[0] = 5.0
    return lambda: FACTORS.__setitem__(0, 1.0)


def hook_all(net: Net, patch: pytest.MonkeyPatch) -> Any:
    return every_module.register_module_forward_hook(lambda module, args, result: result * 3).remove


def hook_all_before(net: Net, patch: pytest.MonkeyPatch) -> Any:
    return every_module.register_module_forward_pre_hook(lambda module, args: (args[0] * 3,)).remove


CHANGES: dict[str, tuple[Callable[[Net, pytest.MonkeyPatch], Any], str]] = {
    "a global switch": (set_global("SWITCH", False), "closure"),
    "a global number, read by a function": (set_global("SCALE", 3.0), "closure"),
    "a global dictionary": (lambda net, patch: patch.setitem(OPTIONS, "shift", 5.0), "closure"),
    "a global list, read by a function of a function": (set_factor, "closure"),
    "an attribute of a global object": (set_on(CONFIG, "gain", 9.0), "closure"),
    "a global function": (set_global("helper", lambda x: x * 7), "closure"),
    "a function that a function calls": (set_global("inner_helper", lambda x: x * 7), "closure"),
    "a function of torch's": (set_on(F, "gelu", lambda x: x * 7), "closure"),
    "a function that torch's layer calls": (set_on(F, "linear", lambda x, weight, bias: x * 7), "closure"),
    "an attribute of a class that is read": (set_on(Settings, "temperature", 5.0), "methods"),
    "an attribute of a base class": (set_on(Base, "factor", 5.0), "methods"),
    "a method of a base class": (set_on(Base, "middle", lambda self, x: x * 7), "methods"),
    "a static method": (set_on(Part, "moved", staticmethod(lambda x: x * 7)), "methods"),
    "a property": (set_on(Part, "heat", property(lambda self: 7.0)), "methods"),
    "forward of a part's class": (set_on(Part, "forward", lambda self, x: x * 7), "methods"),
    "forward of the class itself": (set_on(Net, "forward", lambda self, x: x * 7), "methods"),
    "forward of torch's layer": (set_on(nn.Linear, "forward", lambda self, x: x * 7), "methods"),
    "the class of a part": (lambda net, patch: setattr(net.parts[0], "__class__", Nothing), "methods"),
    "what a callable object holds": (lambda net, patch: setattr(net.parts[0].curve, "slope", 9.0), "attributes"),
    "an argument of a partial": (
        lambda net, patch: net.parts[0].times.keywords.update(other=torch.tensor(9.0)),
        "attributes",
    ),
    "a queue": (lambda net, patch: net.parts[0].last.appendleft(9.0), "attributes"),
    "bytes": (lambda net, patch: net.parts[0].raw.extend(b"bb"), "attributes"),
    "the parts in another order": (
        lambda net, patch: setattr(net.parts, "_modules", dict(zip("01", reversed(net.parts), strict=True))),
        "attributes",
    ),
    "a hook of every module": (hook_all, "hooks"),
    "a hook before every module": (hook_all_before, "hooks"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_original_as_it_is_now_runs_after_what_code_reads_was_exchanged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = Net().eval().requires_grad_(False)
    twin = copy.deepcopy(net)
    before = net(X)
    patch = ForwardPatch(net, lambda original: lambda x: before.clone())
    patch.enable()
    patch.dispatch.learning = True
    net(X)
    patch.dispatch.learning = False
    for _ in range(5):  # what is the same each time is looked at no more
        globals()["UNRELATED"] = object()
        net(X)
    hits = patch.dispatch.hits
    change, reason = CHANGES[name]
    with monkeypatch.context() as context:
        ends = [change(one, context) for one in (net, twin)]
        try:
            expected = twin(X)
            assert not torch.equal(expected, before)
            assert torch.equal(net(X), expected)
        finally:
            for end in ends:
                if callable(end):
                    end()
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (hits, {reason: 1})


def test_globals_that_others_write_cost_no_close_look_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net().eval().requires_grad_(False)
    patch = patched(net, (X,))
    for step in range(6):
        globals()["UNRELATED"] = step
        net(X)
    with monkeypatch.context() as context:
        context.setattr(patch.dispatch, "_closely", None)
        globals()["UNRELATED"] = -1
        net(X)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    net(X)
    assert patch.dispatch.fallbacks == {"closure": 1}


def test_what_a_class_is_given_that_no_call_runs_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net().eval().requires_grad_(False)
    patch = patched(net, (X,))
    monkeypatch.setattr(Part, "__init__", lambda self: None)
    monkeypatch.setattr(Part, "__doc__", "another")
    copy.deepcopy(net.parts[0].curve)  # Python notes names on the class
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (1, {})
