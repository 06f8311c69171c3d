"""On a card: the final gate over graphs, kernels and compiled candidates, and what changes after they were applied."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import threading

import torch
from torch import nn
from torch.nn.modules import module as every_module

from lanewise.fix.candidates.candidate import Several
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.gate.correctness import Correctness, patches_of
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.work.worklist import work_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

NAMES = ["cuda-graph", "compile", "compile-reduce-overhead", "compile-cuda-graph", "kernel-layer_norm"]
NAMES += ["cuda-graph+kernel-layer_norm", "sdpa-math"]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.scale = 0.125

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.drop = nn.LayerNorm(64), Attention(), nn.Dropout(0.5)
        self.last = nn.LayerNorm(64)
        self.options = {"gain": 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(x + self.drop(self.attention(self.norm(x)))) * self.options["gain"]
        return y if SWITCH else -y


SWITCH = True


def set_to(owner: Callable[[Block], Any], name: str, value: Any) -> Callable[[Block], Callable[[], Any]]:
    """Sets an attribute; gives what sets it back."""

    def change(net: Block) -> Callable[[], Any]:
        held = owner(net)
        before = getattr(held, name)
        setattr(held, name, value)
        return lambda: setattr(held, name, before)

    return change


def replace_weight(net: Block) -> Callable[[], Any]:
    before = net.attention.out.weight
    net.attention.out.weight = nn.Parameter(torch.zeros(64, 64, device="cuda"), requires_grad=False)
    return lambda: setattr(net.attention.out, "weight", before)


def other_data(net: Block) -> Callable[[], Any]:
    before = net.norm.weight.data
    net.norm.weight.data = torch.full((64,), 2.0, device="cuda")
    return lambda: setattr(net.norm.weight, "data", before)


def in_place(net: Block) -> Callable[[], Any]:
    net.last.weight.data.mul_(4)
    return lambda: net.last.weight.data.mul_(0.25)


def in_dictionary(net: Block) -> Callable[[], Any]:
    net.options["gain"] = 2.0
    return lambda: net.options.update(gain=1.0)


def in_training(net: Block) -> Callable[[], Any]:
    net.drop.train()
    return lambda: net.drop.eval()


def hook_every(net: Block) -> Callable[[], Any]:
    return every_module.register_module_forward_hook(lambda module, args, result: result * 1.5).remove


def switched(net: Block) -> Callable[[], Any]:
    globals()["SWITCH"] = False
    return lambda: globals().update(SWITCH=True)


def deterministic(net: Block) -> Callable[[], Any]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    return lambda: torch.use_deterministic_algorithms(False)


SEEN: list[int] = []

# What is changed, and whether the fast path may go on: what it reads each time it may.
CHANGES: dict[str, tuple[Callable[[Block], Callable[[], Any]], bool]] = {
    "mode of a part": (in_training, False),
    "attribute": (set_to(lambda net: net.attention, "scale", 0.5), False),
    "value in a dictionary": (in_dictionary, False),
    "hook on a part": (
        lambda net: net.norm.register_forward_hook(lambda module, args, result: SEEN.append(1) or result * 2).remove,
        False,
    ),
    "hook of every module": (hook_every, False),
    "method of a class": (
        set_to(lambda net: Attention, "forward", lambda self, x: self.out(x) * 2),
        False,
    ),
    "method of the class itself": (set_to(lambda net: Block, "forward", lambda self, x: self.norm(x) * 2), False),
    "function of torch's": (set_to(lambda net: nn.functional, "layer_norm", lambda x, *given: x * 2), False),
    "global": (switched, False),
    "parameter": (replace_weight, False),
    "parameter that needs gradients": (lambda net: net.requires_grad_() and (lambda: net.requires_grad_(False)), False),
    "setting of the process": (deterministic, False),
    "data of a parameter": (other_data, True),
    "values of a parameter": (in_place, True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_what_changes_after_apply_is_followed_or_sent_to_the_original_and_kept_results_stay(name: str) -> None:
    """One candidate through the gate; then each change, held against a copy of the module that nothing is applied to."""
    torch.manual_seed(0)
    net, x = Block().cuda().eval().requires_grad_(False), torch.randn(8, 32, 64, device="cuda")
    variant = passed(net, x, name)
    patches = patches_of(variant)
    kept_results_stay(net, x, variant)
    variant.enable()
    wrong: list[str] = []
    for what, (change, goes_on) in CHANGES.items():
        before = [patch.dispatch.hits for patch in patches]
        SEEN.clear()
        undo = change(net)
        try:
            if not agree(net, x, variant):
                wrong.append(f"{what}: another result")
            taken = [patch.dispatch.hits for patch in patches] != before
            if taken and not goes_on:
                wrong.append(f"{what}: the fast path took it")
            if what == "hook on a part" and not SEEN:
                wrong.append(f"{what}: not called")
        finally:
            undo()
        if not agree(net, x, variant):
            wrong.append(f"{what}: another result once it was changed back")
    variant.disable()
    assert not wrong, wrong


def passed(net: Block, x: torch.Tensor, name: str) -> Any:
    """A candidate that has passed the gate."""
    subject = make_subject(net, x)
    state = State(subject)
    found = {one.name: one for one in catalogue(subject, work_of(subject, state))}
    if name not in found:
        pytest.skip("does not apply here")
    variant = found[name].build(subject)
    variant.enable()
    for patch in patches_of(variant):
        patch.dispatch.learning = True
    for _ in range(2):
        net(x.clone())
    variant.disable()
    state.restore()
    result = Correctness(subject, state, seconds=0).check(found[name], variant)
    assert result.passed, result.reason
    return variant


def agree(net: nn.Module, x: torch.Tensor, variant: Any) -> bool:
    """With the candidate as without, for the same random numbers."""
    torch.manual_seed(1)
    found = net(x)
    variant.disable()
    torch.manual_seed(1)
    expected = net(x)
    variant.enable()
    return torch.allclose(found, expected, atol=1e-3, rtol=1e-3)


def kept_results_stay(net: nn.Module, x: torch.Tensor, variant: Any) -> None:
    """Also on other streams and in threads."""
    inputs = [x * scale for scale in (1.0, 2.0, -3.0)]
    expected = [net(one) for one in inputs]
    variant.enable()
    kept = [net(one) for one in inputs for _ in range(20)]
    torch.cuda.synchronize()
    assert all(torch.allclose(kept[20 * at], one, atol=1e-4) for at, one in enumerate(expected))
    assert all(torch.allclose(kept[20 * at + 19], one, atol=1e-4) for at, one in enumerate(expected))
    wrong: list[int] = []

    def work(at: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                if not torch.allclose(net(inputs[at]), expected[at], atol=1e-4):
                    wrong.append(at)
            torch.cuda.synchronize()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    variant.disable()


class Mode(Enum):
    ADD = 1
    TIMES = 2


@pytest.mark.parametrize("values", [(Mode.ADD, Mode.TIMES), (1.0, 2.0), (True, False)])
def test_a_graph_is_not_replayed_for_another_value_in_an_object(values: tuple[Any, Any]) -> None:
    class Net(nn.Module):
        def forward(self, given: Any) -> torch.Tensor:
            x = given.tensor
            if given.how is Mode.ADD:
                return x + 1
            return x * 2 if given.how is Mode.TIMES else x * float(given.how)

    net, x = Net().cuda().eval(), torch.randn(4, 4, device="cuda")
    first, other = (SimpleNamespace(tensor=x, how=how) for how in values)
    subject = make_subject(net, (first,))
    (candidate,) = [one for one in catalogue(subject, work_of(subject, State(subject))) if one.name == "cuda-graph"]
    variant: Any = Several([candidate.build(subject)])
    expected = [net(first), net(other)]
    variant.enable()
    for patch in patches_of(variant):
        patch.dispatch.learning = True
    net(first)
    for patch in patches_of(variant):
        patch.dispatch.learning = False
    assert [torch.equal(a, net(b)) for a, b in zip(expected, (first, other), strict=True)] == [True, True]
    variant.disable()
