"""What a fast path was built on is part of the guard: modes, attributes, hooks, parts and parameters of every module."""

from __future__ import annotations

import copy
import enum
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lanewise.fix.guard.call_kinds import call_key, call_kind
from lanewise.fix.guard.changed import _Unknown, changed_among
from lanewise.fix.guard.memory import Words, lies_as_known
from lanewise.fix.guard.process_state import _tells
from lanewise.fix.guard.trainable import Trainable, kept_by_autograd
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
        self.shapes: dict[str, Any] = {"sizes": [1, [2]], "kinds": {"a"}}
        self.kept = [torch.zeros(4)]

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


class Quiet(Net):
    """Writes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
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


def add_to_set(net: Net) -> None:
    net.parts[0].shapes["kinds"].add("b")


def change_one_put_in_place(net: Net) -> None:
    """An equal dictionary is no change; what is then changed is in that one."""
    net.parts[0].options = dict(net.parts[0].options)
    net(X)
    net.parts[0].options["bias"] = 3.0


CHANGES: dict[str, tuple[Callable[[Net], Any], str]] = {
    "mode of a part": (lambda net: net.parts[1].drop.train(), "training mode"),
    "attribute": (set_scale, "attributes"),
    "attribute deleted": (lambda net: delattr(net.parts[1], "scale"), "attributes"),
    "value in a list": (lambda net: net.parts[1].names.append("b"), "attributes"),
    "value in a dictionary": (lambda net: net.parts[1].options.update(bias=2.0), "attributes"),
    "value in an object in an object": (set_deep, "attributes"),
    "value in a list in a list in a dictionary": (lambda net: net.parts[1].shapes["sizes"][1].append(3), "attributes"),
    "value in a set": (add_to_set, "attributes"),
    "tensor in a list": (lambda net: net.parts[1].kept.__setitem__(0, torch.ones(4)), "attributes"),
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
        monkeypatch.setattr("lanewise.fix.guard.ground.changed_among", _Unknown)
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


@pytest.mark.parametrize("before", [0, 8])
@pytest.mark.parametrize("writes", [True, False])
def test_what_was_put_in_place_of_an_equal_one_is_looked_into(writes: bool, before: int) -> None:
    net = (Net() if writes else Quiet()).eval().requires_grad_(False)
    patch = patched(net, (X,))
    for _ in range(before):
        net.parts[0].scale = float("2")  # another object, and the same number
        net(X)
    change_one_put_in_place(net)
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (before + 1, {"attributes": 1})


def test_a_program_that_writes_an_attribute_in_every_call_is_not_looked_at_in_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net().eval().requires_grad_(False)
    patch = patched(net, (X,))
    for _ in range(8):
        net(X)
    with monkeypatch.context() as context:
        context.setattr(patch.dispatch, "_closely", None)
        net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (9, {})
    net.added = 1
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (9, {"attributes": 1})


class Sizes(NamedTuple):
    rows: int
    columns: list[int]


class Holds(nn.Module):
    """What models of libraries hold: sets, named tuples, paths, loggers, generators."""

    def __init__(self) -> None:
        super().__init__()
        self.pruned: set[int] = set()
        self.skipped = {1, 2}
        self.sizes = Sizes(2, [3, 4])
        self.folder, self.logger, self.generator = Path("a"), logging.getLogger("held"), torch.Generator()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


HELD: dict[str, Callable[[Holds], Any]] = {
    "added to an empty set": lambda net: net.pruned.add(3),
    "exchanged in a set": lambda net: (net.skipped.discard(1), net.skipped.add(9)),
    "the same number of another type in a set": lambda net: (net.skipped.discard(1), net.skipped.add(True)),
    "in a list in a named tuple": lambda net: net.sizes.columns.__setitem__(1, 5),
    "another path": lambda net: setattr(net, "folder", Path("b")),
    "another generator": lambda net: setattr(net, "generator", torch.Generator()),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("lies_as_known", [True, False])
def test_what_models_of_libraries_hold_is_followed_without_looking_into_it_each_time(
    name: str, lies_as_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lanewise.fix.guard.contents.lies_as_known", lambda: lies_as_known)
    net = Holds().eval()
    patch = patched(net, (X,))
    net.logger.isEnabledFor(logging.INFO)  # it remembers that
    str(net.folder)
    net(X)
    with monkeypatch.context() as context:
        context.setattr("lanewise.fix.guard.contents.told", None)
        net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (2, {})
    HELD[name](net)
    net(X)
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (2, {"attributes": 2})


def test_what_moves_from_one_list_to_another_is_seen() -> None:
    net = Net().eval().requires_grad_(False)
    net.one, net.two = ["a", "b"], ["c"]
    patch = patched(net, (X,))
    net(X)
    net.two.insert(0, net.one.pop())
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (1, {"attributes": 1})


@pytest.mark.parametrize("values", [3, 100], ids=["one by one", "all at once"])
def test_lists_that_shrink_and_variables_that_are_emptied_are_seen(values: int) -> None:
    scale, held = 2.0, [object() for _ in range(values)]

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * scale * len(held)

    entry = Entry(function, [])
    patch = patched(entry, (X,))
    for _ in range(3):
        entry(X)
    last = held.pop()
    entry(X)
    held.append(last)
    entry(X)
    before, held[1:] = held[1:], held[2:]
    entry(X)
    held[1:] = before
    entry(X)
    del scale
    with pytest.raises(NameError, match="scale"):
        entry(X)
    scale = 2.0
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (5, {"closure": 3})


@pytest.mark.parametrize("proven", [1, 2])
def test_an_error_of_the_fast_path_is_raised_and_it_has_run_once(proven: int) -> None:
    """Whatever the error: the guard has one of its own for lists of another length."""
    net = Quiet().eval().requires_grad_(False)
    runs: list[int] = []

    def fast(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        if len(runs) > proven:
            raise ValueError("of the program")
        return x

    patch = ForwardPatch(net, lambda original: fast)
    patch.enable()
    patch.dispatch.learning = True
    for count in range(proven):
        net(X[: count + 1])
    patch.dispatch.learning = False
    runs.clear()
    for count in range(proven):
        net(X[: count + 1])
    for count in range(proven):
        with pytest.raises(ValueError, match="of the program"):
            net(X[: count + 1])
    assert len(runs) == 2 * proven


def test_two_modules_of_a_class_have_a_guard_each() -> None:
    one, other = Quiet().eval().requires_grad_(False), Quiet().eval().requires_grad_(False)
    patches = patched(one, (X,)), patched(other, (X[:1],))
    for _ in range(3):
        assert (one(X).shape, other(X[:1]).shape) == (X.shape, X[:1].shape)
    one.parts[0].scale = 3.0
    one(X), other(X[:1]), other(X)
    assert [(patch.dispatch.hits, patch.dispatch.fallbacks) for patch in patches] == [
        (3, {"attributes": 1}),
        (4, {"shape": 1}),
    ]


def test_of_a_long_list_the_length_counts() -> None:
    net = Net().eval().requires_grad_(False)
    net.words = [str(at) for at in range(5000)]
    patch = patched(net, (X,))
    assert len(patch.dispatch.ground._contents._values) < 100
    net(X)
    net.words.append("more")
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (1, {"attributes": 1})


def test_lists_and_variables_lie_in_memory_as_known_in_the_python_of_these_tests() -> None:
    assert lies_as_known()
    assert _tells()


def test_what_a_hook_reads_is_part_of_it() -> None:
    net, scales = Net().eval().requires_grad_(False), [1.0]
    handle = net.parts[0].register_forward_hook(lambda module, args, result: result * scales[0])
    patch = patched(net, (X,))
    net(X)
    scales[0] = 2.0
    net(X)
    scales[0] = 1.0
    net(X)
    handle.remove()
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (2, {"hooks": 2})


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


def others_of(x: torch.Tensor) -> dict[str, tuple[Any, ...]]:
    return {
        "none": (),
        "two": (x, x),
        "shape": (torch.ones(4, 4),),
        "strides": (torch.ones(4, 2).t(),),
        "type": (x.double(),),
        "device": (x.to("meta"),),
        "class": (nn.Parameter(x, requires_grad=False),),
        "requires_grad": (x.clone().requires_grad_(),),
        "misaligned": (torch.ones(9)[1:].view(2, 4),),
        "no tensor": (1,),
        "list": ([x],),
        "inference tensor": (inference_tensor(),),
    }


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 4)


@pytest.mark.parametrize("compared_by_torch", [True, False])
@pytest.mark.parametrize("name", others_of(X))
def test_a_call_like_the_last_one_is_of_its_kind_and_no_other(
    name: str, compared_by_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lanewise.fix.guard.known_call._compares", lambda: compared_by_torch)
    entry = Entry(lambda *args: args, [])
    patch = patched(entry, (X,))
    for _ in range(3):
        entry(X)
        entry(X.clone())
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (6, 0)
    entry(*others_of(X)[name])
    # Tensors made in inference mode are of the same kind while gradients are not asked for: they have one way to run.
    assert patch.dispatch.fallbacks.total() == (name != "inference tensor")
    with torch.no_grad():
        entry(X)
    with torch.autocast("cpu"):
        entry(X)
    with torch.inference_mode():
        entry(X)
    assert patch.dispatch.fallbacks.total() == (name != "inference tensor") + 3
    entry(X)
    assert patch.dispatch.hits == 7 + (name == "inference tensor")


def test_calls_with_several_arguments_are_told_apart_one_after_the_other() -> None:
    given: list[tuple[Any, ...]] = [(X, 1), (X, True), (X, "a"), (X, None), (1, X), (X, X.clone()), (X, X)]
    for at, proven in enumerate(given):
        entry = Entry(lambda *args: args, [])
        patch = patched(entry, proven)
        for args in given:
            entry(*args)
        entry(*proven)
        assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (2, len(given) - 1), at


class Sent:
    """An object with tensors in it, as language models' caches are."""

    def __init__(self, value: Any) -> None:
        self.value, self.tensor, self.layers = value, X, [SimpleNamespace(keys=X.clone())]


MANY: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X,), {"mask": X.clone(), "scale": 2.0}),
    ((X,), {"scale": 2.0, "mask": X.clone()}),
    ((X,), {"mask": X.clone(), "scale": 2}),
    ((X,), {"mask": X.clone(), "scale": 3.0}),
    ((X,), {"mask": X.clone()}),
    ((X,), {"mask": None, "scale": 2.0}),
    ((X,), {"mask": torch.ones(9)[1:].view(2, 4), "scale": 2.0}),
    ((X,), {"mask": X, "scale": 2.0}),
    ((X, X.clone(), 2.0), {}),
    (([X, X.clone()],), {}),
    (((X, X.clone()),), {}),
    (([X, X.clone(), X.clone()],), {}),
    (([X, torch.ones(4, 2)],), {}),
    (({"a": X, "b": [0.0, Mode.ADD]},), {}),
    (({"a": X, "b": [-0.0, Mode.ADD]},), {}),
    (({"a": X, "b": [0.0, Mode.TIMES]},), {}),
    (({"b": [0.0, Mode.ADD], "a": X},), {}),
    (({"a": X, "c": [0.0, Mode.ADD]},), {}),
    (([X], [X.clone(), X.clone()]), {}),
    (([X, X.clone()], [X.clone()]), {}),
    (({"a": X, "b": (0.0, Mode.ADD)},), {}),
    (({"a": X, "b": [False, Mode.ADD]},), {}),
    ((X, torch.float32, "cpu", b"", ...), {}),
    ((X, torch.float64, "cpu", b"", ...), {}),
    ((X, nn.Parameter(X, requires_grad=False)), {}),
    ((SimpleNamespace(value=1.0, tensor=X),), {}),
    ((SimpleNamespace(value=2.0, tensor=X),), {}),
    ((SimpleNamespace(other=1.0, tensor=X),), {}),
    ((Sent(1.0),), {}),
    ((Sent(True),), {}),
]


@pytest.mark.parametrize("at", range(len(MANY)))
def test_calls_by_name_and_with_containers_are_known_without_a_key_and_told_apart(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Entry(lambda *args, **kwargs: (args, kwargs), [])
    patch = ForwardPatch(entry, lambda original: lambda *args, **kwargs: (args, kwargs))
    patch.enable()
    args, kwargs = MANY[at]
    patch.dispatch.learning = True
    entry(*args, **kwargs)
    patch.dispatch.learning = False
    for other, named in MANY:
        entry(*other, **named)
    entry(*args, **kwargs)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (3, len(MANY) - 1)
    known = kwargs.get("mask") is not X  # torch does not compare the same tensor twice
    monkeypatch.setattr("lanewise.fix.patch.call_key", None)
    with nullcontext() if known else pytest.raises(TypeError):
        entry(*args, **kwargs)


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def other_default_type() -> Any:
    return torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)


def deterministic() -> Any:
    return torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)


def entered(context: Any) -> Any:
    return context.__enter__(), lambda: context.__exit__(None, None, None)


PROCESS: dict[str, tuple[Callable[[], Any], str]] = {
    "default type": (other_default_type, "settings"),
    "deterministic algorithms": (deterministic, "settings"),
    "default device": (lambda: entered(torch.device("meta")), "settings"),
    "watched functions": (lambda: entered(BaseTorchFunctionMode()), "transform"),
    "watched operators": (lambda: entered(Watching()), "transform"),
    "autocast on a card": (
        lambda: (torch.set_autocast_enabled("cuda", True), lambda: torch.set_autocast_enabled("cuda", False)),
        "autocast",
    ),
}


@pytest.mark.parametrize("told_by_torch", [True, False])
@pytest.mark.parametrize("name", PROCESS)
def test_calls_under_other_settings_of_the_process_go_to_the_original(
    name: str, told_by_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told_by_torch:
        monkeypatch.setattr("lanewise.fix.guard.process_state._tells", lambda: False)
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    for _ in range(2):
        net(X)
    change, reason = PROCESS[name]
    _, undo = change()
    try:
        net(X)
        assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (2, {reason: 1})
    finally:
        undo()
    net(X)
    assert patch.dispatch.hits == 3


def test_what_only_decides_about_speed_changes_nothing() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    net(X)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        net(X)
    finally:
        torch.set_num_threads(threads)
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (3, {})


def test_threads_that_call_with_other_kinds_get_what_is_theirs() -> None:
    entry = Entry(lambda x: x.shape[0], [])

    class ByKind:
        def __call__(self, x: torch.Tensor) -> int:
            return x.shape[0]

        def by_kind(self, key: Any, args: Any, kwargs: Any) -> int:
            return rows.setdefault(key, args[0].shape[0])

    rows: dict[Any, int] = {}
    patch = ForwardPatch(entry, lambda original: ByKind())
    patch.enable()
    patch.dispatch.learning = True
    for count in (1, 2):
        entry(torch.ones(count, 4))
    patch.dispatch.learning = False
    wrong: list[int] = []

    def work(count: int) -> None:
        x = torch.ones(count, 4)
        wrong.extend(found for _ in range(3000) if (found := entry(x)) != count)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_autocast_on_a_card_counts_for_arguments_on_the_host() -> None:
    kinds: list[Any] = []
    for on in (False, True):
        torch.set_autocast_enabled("cuda", on)
        kinds.append(call_kind(((X,), {}), False))
    torch.set_autocast_enabled("cuda", False)
    assert kinds[0] != kinds[1]


@pytest.mark.parametrize("read_at_once", [True, False])
def test_whether_parameters_need_gradients_is_seen(read_at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not read_at_once:
        monkeypatch.setattr("lanewise.fix.guard.trainable.kept_by_autograd", lambda: None)
    never = nn.Parameter(torch.ones(2), requires_grad=False)
    once = nn.Parameter(torch.ones(2)).requires_grad_(False)
    needs = nn.Parameter(torch.ones(2))
    whether = Trainable([never, once, needs])
    for parameter in (never, once, needs):
        was = parameter.requires_grad
        assert whether.same()
        parameter.requires_grad_(not was)
        assert not whether.same()
        parameter.requires_grad_(was)
    for parameter in (never, once):
        written = Trainable([parameter])
        assert written.same()
        parameter.mul_(needs)
        assert parameter.requires_grad
        assert not written.same()
        parameter.detach_()
        assert written.same()
    (needs * 2).sum().backward()
    needs.data = torch.zeros(5)
    never.grad = torch.ones(2)
    assert whether.same()
    assert Trainable([]).same()


def test_the_place_of_that_byte_is_known_in_the_torch_of_these_tests() -> None:
    assert kept_by_autograd() is not None


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


@pytest.mark.parametrize("known", [1, 30])
def test_copies_made_after_any_number_of_calls_compute_with_their_own_weights(known: int) -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    expected = net(X)

    def twin() -> nn.Module:
        made = copy.copy(net)
        made._parameters = {name: nn.Parameter(torch.zeros_like(p), False) for name, p in net._parameters.items()}
        return made

    # Gone and made again: there are as many holders as once before.
    for _ in range(3):
        for _ in range(known):
            assert torch.equal(net(X), expected)
        other = twin()
        for _ in range(known):
            before = patch.dispatch.hits
            assert not other(X).any()
            assert patch.dispatch.hits == before
            assert torch.equal(net(X), expected)
            assert patch.dispatch.hits == before + 1
        del other
    assert not patch.dispatch.fallbacks


def test_while_somebody_looks_into_the_module_its_calls_are_not_looked_at_closely() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    looking = net._non_persistent_buffers_set  # as guards of torch's compiler do
    net(X)
    patch.dispatch._closely = None  # type: ignore[method-assign]
    expected = patch.dispatch.original(X)
    for _ in range(30):
        assert torch.equal(net(X), expected)
    del looking


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_patched_module_can_be_traced_and_exported() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    expected = net(X)
    patched(net, (X,))
    assert torch.equal(torch.jit.trace(net, X)(X), expected)
    assert torch.allclose(torch.export.export(net, (X,)).module()(X), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "use",
    [
        lambda net: torch.compile(net, backend="eager")(X),
        lambda net: torch.jit.trace(net, X)(X),
        lambda net: torch.export.export(net, (X,)).module()(X),
        lambda net: torch.fx.symbolic_trace(net)(X),
        lambda net: torch.func.functional_call(net, dict(net.named_parameters()), (X,)),
        lambda net: copy.deepcopy(net)(X),
    ],
    ids=["compile", "trace", "export", "fx", "functional call", "copy"],
)
def test_what_else_is_done_with_a_module_does_not_end_its_fast_path(use: Callable[[Any], object]) -> None:
    """`torch.compile` notes on a module that it has wrapped it."""
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    use(net)
    patch.dispatch.hits, before = 0, dict(patch.dispatch.fallbacks)
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (1, before)


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


def test_changes_are_told_at_once_but_of_those_left_out() -> None:
    held = [vars(SimpleNamespace(a=1)) for _ in range(3)]
    changed = changed_among(held)

    def asked(*but: int) -> Callable[[], bool]:
        told = changed.telltale(frozenset(but)) or pytest.skip("this Python tells of no changes")
        words = Words(told.places)
        return lambda: bool(told.unchanged) and words.same()

    every = asked()
    held[1]["a"] = 2
    assert not every()
    every, others = asked(), asked(1)
    held[1]["a"] = 3
    assert (every(), others()) == (False, True)
    held[2]["a"] = 2
    assert not others()


def test_a_hook_on_another_module_is_looked_at_once() -> None:
    net, other = nn.Linear(4, 4).eval().requires_grad_(False), nn.Linear(4, 4)
    patch = patched(net, (X,))
    net(X)
    other.register_forward_hook(lambda *_: None)
    net(X)
    patch.dispatch._closely = None  # type: ignore[method-assign]
    net(X)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (3, {})


def test_what_is_told_of_a_value_ends_in_the_middle_of_large_ones() -> None:
    around: list[Any] = []
    around.append(around)
    assert told(around) == told(around)
    assert told([[number] * 100 for number in range(100)])
    assert told(threading.Lock()) != told(threading.Lock())


def test_two_kinds_in_turns_and_another_patch_of_the_module_are_told_without_a_closer_look() -> None:
    net = nn.Linear(4, 4).eval().requires_grad_(False)
    patch = patched(net, (X,))
    patch.dispatch.learning = True
    net(X[:1])
    patch.dispatch.learning = False
    other = ForwardPatch(net, lambda original: original)
    other.enable()
    other.disable()
    assert patch.dispatch.ground.alone(patch.dispatch.ground.holders())
    for x in (X, X[:1]):
        net(x)
    patch.dispatch._closely = None  # type: ignore[method-assign]
    for x in (X, X[:1], X):
        net(x)
    assert not patch.dispatch.fallbacks
    shallow = copy.copy(net)
    assert not patch.dispatch.ground.alone(patch.dispatch.ground.holders())
    del shallow
    assert patch.dispatch.ground.alone(patch.dispatch.ground.holders())
