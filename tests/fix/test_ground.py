"""What a fast path was built on is part of the guard: modes, attributes, hooks, parts and parameters of every module."""

from __future__ import annotations

import copy
import enum
import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lanewise.fix.guard.call_kinds import call_key, call_kind
from lanewise.fix.guard.changed import _Unknown, changed_among
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Entry
from lanewise.fix.telling import told

X = torch.ones(2, 4)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.zeros(4))
        self.scale = 2.0
        self.names = ["a"]
        self.options = {"bias": 1.0}
        self.config = SimpleNamespace(depth=SimpleNamespace(value=3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.layer(x)) * self.scale + self.shift


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.aux: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        self.aux = x.mean()
        return x


def patched(target: Any, *calls: tuple[Any, ...]) -> ForwardPatch:
    """With a fast path that does what the original does, and can be told from it by what is counted."""
    patch = ForwardPatch(target, lambda original: lambda *args, **kwargs: original(*args, **kwargs))
    patch.enable()
    patch.dispatch.learning = True
    for args in calls:
        target(*args)
    patch.dispatch.learning = False
    patch.dispatch.hits = 0
    return patch


def set_scale(net: Net) -> None:
    net.parts[1].scale = 3.0


def set_deep(net: Net) -> None:
    net.parts[1].config.depth.value = 4


def replace_weight(net: Net) -> None:
    net.parts[0].layer.weight = nn.Parameter(torch.zeros(4, 4), requires_grad=False)


def replace_part(net: Net) -> None:
    net.parts[0].layer = nn.Linear(4, 4)


def patch_part(net: Net) -> None:
    net.parts[0].forward = lambda x: x


CHANGES: dict[str, tuple[Callable[[Net], Any], str]] = {
    "mode of a part": (lambda net: net.parts[1].drop.train(), "training mode"),
    "attribute": (set_scale, "attributes"),
    "attribute deleted": (lambda net: delattr(net.parts[1], "scale"), "attributes"),
    "value in a list": (lambda net: net.parts[1].names.append("b"), "attributes"),
    "value in a dictionary": (lambda net: net.parts[1].options.update(bias=2.0), "attributes"),
    "value in an object in an object": (set_deep, "attributes"),
    "hook on a part": (lambda net: net.parts[1].layer.register_forward_hook(lambda *_: None), "hooks"),
    "hook before a part": (lambda net: net.parts[1].register_forward_pre_hook(lambda *_: None), "hooks"),
    "backward hook": (lambda net: net.parts[1].layer.register_full_backward_hook(lambda *_: None), "hooks"),
    "parameter": (replace_weight, "parameters"),
    "unfrozen": (lambda net: net.parts[1].layer.requires_grad_(), "parameters"),
    "buffer": (lambda net: setattr(net.parts[1], "shift", torch.ones(4)), "buffers"),
    "part": (replace_part, "parts"),
    "forward of a part": (patch_part, "attributes"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("told_by_python", [True, False])
def test_whatever_changes_in_a_part_sends_calls_to_the_original(
    name: str, told_by_python: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told_by_python:
        monkeypatch.setattr("lanewise.fix.call_kinds.ground.changed_among", _Unknown)
    net = Net().eval().requires_grad_(False)
    patch = patched(net, (X,))
    for _ in range(3):
        net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (3, {})
    change, reason = CHANGES[name]
    change(net)
    expected = patch.dispatch.original
    if name != "attribute deleted":
        torch.manual_seed(0)
        found = net(X)
        torch.manual_seed(0)
        assert torch.equal(found, expected(X))
    else:
        with pytest.raises(AttributeError):
            net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (3, {reason: 1})


def test_what_is_as_it_was_again_takes_the_fast_path_again() -> None:
    net = Net().eval().requires_grad_(False)
    patch = patched(net, (X,))
    for _ in range(2):
        net.train()
        net(X)
        net.eval()
        net(X)
        hook = net.parts[0].register_forward_hook(lambda *_: None)
        net(X)
        hook.remove()
        net(X)
        with torch.no_grad():
            net.parts[0].layer.weight.mul_(2)
        net(X)
    assert patch.dispatch.hits == 6
    assert patch.dispatch.fallbacks == {"training mode": 2, "hooks": 2}


def test_closures_and_globals_of_a_function_are_part_of_it() -> None:
    scale, layer = 2.0, nn.Linear(4, 4).eval().requires_grad_(False)

    def function(x: torch.Tensor) -> torch.Tensor:
        return layer(x) * scale * GLOBAL

    entry = Entry(function, [layer])
    patch = patched(entry, (X,))
    entry(X)
    scale = 3.0
    entry(X)
    scale = 2.0
    entry(X)
    globals()["GLOBAL"] = 2
    entry(X)
    globals()["GLOBAL"] = 1
    layer.train()
    entry(X)
    assert patch.dispatch.hits == 2
    assert patch.dispatch.fallbacks == {"closure": 2, "training mode": 1}


GLOBAL = 1


class Mode(enum.Enum):
    ADD = 1
    TIMES = 2


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def held(value: Any, tensor: torch.Tensor = X) -> Any:
    return SimpleNamespace(value=value, tensor=tensor)


OTHERS: list[tuple[Any, Any]] = [
    (Mode.ADD, Mode.TIMES),
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (np.float32(1), np.float32(2)),
    (np.arange(2), np.arange(2) + 1),
    (SimpleNamespace(a=1), SimpleNamespace(a=2)),
    (Slotted(1), Slotted(2)),
    (held(Mode.ADD), held(Mode.TIMES)),
    (held(SimpleNamespace(a=1)), held(SimpleNamespace(a=2))),
    ([1, [2]], [1, [3]]),
    (slice(1), slice(2)),
    (torch.relu, torch.tanh),
    ((lambda k: lambda x: x * k)(1), (lambda k: lambda x: x * k)(2)),
    (object(), object()),
]


@pytest.mark.parametrize(("one", "other"), OTHERS, ids=[str(at) for at in range(len(OTHERS))])
def test_another_value_beside_the_tensors_is_another_kind_of_call(one: Any, other: Any) -> None:
    def kind(value: Any) -> Any:
        return call_kind(((X, value), {}), False), call_key((X, value), {}, False)

    assert kind(one)[0] == kind(one)[0]
    assert kind(one)[1] == kind(one)[1]
    assert kind(one)[0] != kind(other)[0]
    assert kind(one)[1] != kind(other)[1]


def test_memory_that_lies_otherwise_is_another_kind_of_call() -> None:
    around = torch.ones(9)
    aligned, misaligned = around[:8].view(2, 4), around[1:].view(2, 4)
    pairs: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [((aligned,), (misaligned,)), ((X, X), (X, X.clone()))]
    for one, other in pairs:
        for find in (lambda args: call_key(args, {}, False), lambda args: call_kind((args, {}), False)):
            assert find(one) == find(one)
            assert find(one) != find(other)


def test_under_transforms_and_modes_the_original_is_what_runs() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,), (X[0],))
    torch.func.jvp(net, (X,), (X,))
    torch.vmap(net)(X)
    with FlopCounterMode(display=False) as counter:
        net(X)
    assert counter.get_total_flops() > 0
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, X)
        assert torch.autograd.forward_ad.unpack_dual(net(dual)).tangent is not None
    assert patch.dispatch.hits == 0


def test_shallow_copies_and_replicas_compute_with_their_own_weights() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    twin = copy.copy(net)
    twin._parameters = {name: nn.Parameter(torch.zeros_like(p)) for name, p in net._parameters.items()}
    assert not twin(X).any()
    replica = net._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.zeros(4, 4), torch.zeros(4)
    assert not replica(X).any()
    assert patch.dispatch.hits == 0
    net(X)
    assert patch.dispatch.hits == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_patched_module_can_be_traced_and_exported() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    expected = net(X)
    patched(net, (X,))
    assert torch.equal(torch.jit.trace(net, X)(X), expected)
    assert torch.allclose(torch.export.export(net, (X,)).module()(X), expected)


def test_nothing_is_kept_alive_by_being_guarded() -> None:
    net = Net().eval()
    patched(net, (X,))
    gone = weakref.ref(net.parts[0])
    del net
    gc.collect()
    assert gone() is None


def test_changes_are_told_for_every_dictionary_and_only_once_they_are_made() -> None:
    held = [vars(SimpleNamespace(a=1)) for _ in range(50)]
    changed = changed_among(held)
    assert changed.none() or isinstance(changed, _Unknown)
    held[3]["a"] = 2
    held[7]["b"] = 1
    del held[9]["a"]
    assert not changed.none()
    assert {3, 7, 9} <= set(changed.which())
    for at in list(changed.which()):
        changed.settle(at)
    assert changed.none() or isinstance(changed, _Unknown)


def test_what_is_told_of_a_value_ends_in_the_middle_of_large_ones() -> None:
    around: list[Any] = []
    around.append(around)
    assert told(around) == told(around)
    assert told([[number] * 100 for number in range(100)])
    assert told(threading.Lock()) != told(threading.Lock())
