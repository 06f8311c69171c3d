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
        return self.last(x + self.drop(self.attention(self.norm(x)))) * self.options["gain"]


def set_scale(net: Block) -> None:
    net.attention.scale = 0.5


def replace_weight(net: Block) -> None:
    net.attention.out.weight = nn.Parameter(torch.zeros(64, 64, device="cuda"), requires_grad=False)


def other_data(net: Block) -> None:
    net.norm.weight.data = torch.full((64,), 2.0, device="cuda")


def in_place(net: Block) -> None:
    net.last.weight.data.mul_(3)


SEEN: list[int] = []

CHANGES: dict[str, Callable[[Block], Any]] = {
    "mode of a part": lambda net: net.drop.train(),
    "attribute": set_scale,
    "value in a dictionary": lambda net: net.options.update(gain=2.0),
    "hook on a part": lambda net: net.norm.register_forward_hook(lambda *_: SEEN.append(1)),
    "parameter": replace_weight,
    "data of a parameter": other_data,
    "values of a parameter": in_place,
}


@pytest.fixture(params=NAMES)
def proven(request: pytest.FixtureRequest) -> Any:
    """A candidate that has passed the gate, the module and an input."""
    torch.manual_seed(0)
    net, x = Block().cuda().eval().requires_grad_(False), torch.randn(8, 32, 64, device="cuda")
    subject = make_subject(net, x)
    state = State(subject)
    found = {one.name: one for one in catalogue(subject, work_of(subject, state))}
    if request.param not in found:
        pytest.skip("does not apply here")
    variant = found[request.param].build(subject)
    variant.enable()
    for patch in patches_of(variant):
        patch.dispatch.learning = True
    for _ in range(2):
        net(x.clone())
    variant.disable()
    state.restore()
    result = Correctness(subject, state, seconds=0).check(found[request.param], variant)
    assert result.passed, result.reason
    return net, x, variant


def agree(net: nn.Module, x: torch.Tensor, variant: Any) -> None:
    """With the candidate as without, for the same random numbers."""
    torch.manual_seed(1)
    found = net(x)
    variant.disable()
    torch.manual_seed(1)
    expected = net(x)
    variant.enable()
    assert torch.allclose(found, expected, atol=1e-4, rtol=1e-4), float((found - expected).abs().max())


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_after_apply_is_followed_or_sent_to_the_original(proven: Any, change: str) -> None:
    net, x, variant = proven
    variant.enable()
    agree(net, x, variant)
    SEEN.clear()
    CHANGES[change](net)
    net(x)
    assert len(SEEN) == (change == "hook on a part")
    agree(net, x, variant)
    variant.disable()


def test_results_that_are_kept_stay_also_on_other_streams_and_in_threads(proven: Any) -> None:
    net, x, variant = proven
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
