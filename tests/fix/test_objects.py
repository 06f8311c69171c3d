"""Arguments and results in objects of the program's own: dataclasses, caches; and what cannot be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.errors import UsageError
from lanewise.fix.candidates import graphs
from lanewise.fix.candidates.compiled import candidates
from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.guard.call_kinds import call_kind
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.tensors import copy_call, map_tensors, tensors_of
from lanewise.fix.work.worklist import WorkList
from tests.fix.programs import planted


@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    name: str = "linear"


class Cache:
    """What a language model gives back beside its logits."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.layers = [Output(keys, (keys,))]
        self.step = torch.relu
        self.me = self


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.linear(x)
        return Output(hidden.softmax(-1), (hidden,)), Cache(hidden)


def test_tensors_inside_objects_are_seen_and_replaced_in_copies() -> None:
    x = torch.randn(2)
    cache = Cache(x)
    assert len(tensors_of((cache, 1))) >= 2
    doubled = map_tensors(lambda tensor: 2 * tensor, cache)
    assert doubled is not cache
    assert doubled.me is doubled
    assert torch.equal(doubled.layers[0].logits, 2 * x)
    assert doubled.layers[0].logits is doubled.layers[0].hidden[0], "what occurs twice is replaced once"
    assert cache.layers[0].logits is x
    ((copied,), _) = copy_call(((cache,), {}))
    assert copied.layers is not cache.layers


def test_modules_functions_and_what_holds_them_are_not_taken_apart() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Linear(2, 2)
            self.average = torch.zeros(2)

    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    for value in (nn.Linear(2, 2), torch.relu, optimizer, Trainer(), Output, "text", torch.dtype):
        assert tensors_of(value) == []
        assert map_tensors(lambda tensor: 2 * tensor, value) is value


def test_the_kind_of_a_call_tells_apart_objects_of_other_classes_and_shapes() -> None:
    def kind(value: Any) -> Any:
        return call_kind(((value,), {}), False)

    x, wide = torch.randn(2), torch.randn(3)
    y = torch.randn(2)
    assert kind(Output(x, (y,))) == kind(Output(x + 1, (x,)))
    others = [Output(wide, (x,)), Output(x, (x, y)), Output(x, (y,), "other"), Output(x, (x,)), Cache(x), x]
    assert len({kind(value) for value in (Output(x, (y,)), *others)}) == 1 + len(others)


@pytest.mark.parametrize("wrong", [pytest.param(False, marks=pytest.mark.slow), True])
def test_results_in_objects_are_compared_value_by_value(wrong: bool) -> None:
    def fast(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(x: torch.Tensor) -> Any:
            hidden = module.linear(x) + wrong
            return Output(hidden.softmax(-1), (hidden,)), Cache(hidden)

        return forward

    subject = make_subject(Layer().eval(), torch.randn(4, 8))
    gate = Correctness(subject, State(subject), seconds=0.1)
    candidate = planted("rewritten", fast)
    variant = candidate.build(subject)
    assert isinstance(variant, ForwardPatch)
    found = gate.check(candidate, variant)
    assert found.passed != wrong, found.reason
    if wrong:
        assert "output 1" in found.reason


def test_a_replayed_graph_gives_objects_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replay writes to the same memory. Here it is played by the host: same arguments, same results, again."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    layer = Layer().requires_grad_(False)
    graph = graphs._Graph(layer, (torch.zeros(2, 8),), {}, torch.device("cpu"), [])

    def replay() -> None:
        for place, value in zip(tensors_of(graph._result), tensors_of(layer(*graph._arguments)), strict=True):
            place.copy_(value)

    graph.graph.replay = replay
    inputs = [torch.randn(2, 8) for _ in range(2)]
    results = [graph((x,), {}) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert [type(one) for one in result] == [Output, Cache]
        assert all(map(torch.equal, tensors_of(result), tensors_of(layer(x))))


def counting() -> Callable[[torch.Tensor], Any]:
    calls = [0]

    def count(x: torch.Tensor) -> Any:
        calls[0] += 1
        return x, calls[0]

    return count


def remembering() -> Callable[[torch.Tensor], torch.Tensor]:
    calls = [0]

    def count(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x * calls[0]

    return count


def yields(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x


def grows(cache: Cache, x: torch.Tensor) -> torch.Tensor:
    cache.layers.append(Output(x, ()))
    return x


@pytest.mark.parametrize(
    ("function", "inputs", "says"),
    [
        (yields, torch.randn(2), "holds a generator"),
        (lambda x: x.numpy(), torch.randn(2), "holds a numpy.ndarray"),
        (counting(), torch.randn(2), "gives 1 first and 2 then"),
        (remembering(), torch.randn(2), "output 0 of the same call is another one"),
        (grows, (Cache(torch.randn(2)), torch.randn(2)), "other tensors in its arguments"),
    ],
    ids=["generator", "array", "counter", "scaled by a counter", "growing cache"],
)
def test_what_cannot_be_compared_is_said_at_once(function: Any, inputs: Any, says: str) -> None:
    subject = make_subject(function, inputs)
    with pytest.raises(UsageError, match=says):
        Correctness(subject, State(subject), seconds=0.1)


def test_a_buffer_that_counts_calls_is_put_back_between_those_of_a_check() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    subject = make_subject(Counts().eval(), torch.randn(4, 8))
    gate = Correctness(subject, State(subject), seconds=0.1)
    unchanged = planted("unchanged", lambda module, original: lambda x: original(x))
    found = gate.check(unchanged, unchanged.build(subject))
    assert found.passed, found.reason


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_what_cannot_be_exchanged_or_put_back_is_refused_with_what_to_do() -> None:
    x = torch.randn(2, 8)
    with pytest.raises(UsageError, match=r"TorchScript.* made from"):
        make_subject(torch.jit.trace(nn.Linear(8, 8).eval(), x), x)
    with torch.inference_mode():
        made = nn.Linear(8, 8)
    with pytest.raises(UsageError, match="make the module outside"):
        make_subject(made, x)
    with pytest.raises(UsageError, match="the class Linear: make one"):
        make_subject(nn.Linear, x)
    with pytest.raises(UsageError, match=r"missing .*'b'; a list stands for several calls"):
        make_subject(lambda a, b: a + b, [x, x])


@pytest.mark.parametrize("wrong", [False, True])
def test_complex_numbers_may_be_off_by_rounding_and_no_more(wrong: bool) -> None:
    class Mixes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    def fast(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            halves = x[:, :8] @ module.weight[:8] + x[:, 8:] @ module.weight[8:]
            return halves.conj().resolve_conj() if wrong else halves

        return forward

    x = torch.randn(4, 16, dtype=torch.complex64)
    subject = make_subject(Mixes().eval(), x)
    gate = Correctness(subject, State(subject), seconds=0.1)
    assert gate.what == "a copy of the module in double precision"
    candidate = planted("other order", fast)
    found = gate.check(candidate, candidate.build(subject))
    assert found.passed != wrong, found.reason


def test_what_is_compiled_already_is_not_compiled_again() -> None:
    x = torch.randn(2, 8)
    in_place = nn.Linear(8, 8)
    in_place.compile()
    for compiled in (torch.compile(nn.Linear(8, 8)), torch.compile(torch.relu), in_place):
        assert {one.hopeless for one in candidates(make_subject(compiled, x), WorkList())} == {
            "the program is compiled already"
        }
    assert {one.hopeless for one in candidates(make_subject(nn.Linear(8, 8), x), WorkList())} == {""}
