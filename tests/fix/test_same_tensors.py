"""Calls with the same tensors again and again are told by one read of memory: whatever changes in such a tensor, and all
that may be put in its place, is seen as it is where torch is asked for each."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lanewise.fix.guard import same_tensors
from lanewise.fix.guard.same_tensors import _CHANGES, _layout, can_be_told
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Entry

WARM = 12
"""Calls after which a cache is known."""


class Cache:
    """As language models have them: tensors in objects and in lists."""

    def __init__(self, count: int = 4) -> None:
        self.keys = [torch.ones(3, 4) for _ in range(count)]
        self.layers = [SimpleNamespace(values=torch.ones(3, 4)) for _ in range(count)]


def taken(*proven: Any) -> tuple[Entry, ForwardPatch]:
    """An entry whose calls with such arguments are proven."""
    entry = Entry(lambda *args: args, [])
    patch = ForwardPatch(entry, lambda original: lambda *args: args)
    patch.enable()
    patch.dispatch.learning = True
    entry(*proven)
    patch.dispatch.learning = False
    patch.dispatch.hits = 0
    return entry, patch


def known(patch: ForwardPatch) -> int:
    """How many tensors are expected to be the same."""
    among = patch.dispatch._recent[0].among if patch.dispatch._recent else None
    return 0 if among is None else len(among.same.numbers)


def warm(entry: Entry, *args: Any) -> None:
    for _ in range(WARM):
        entry(*args)


def test_how_tensors_lie_in_memory_is_known_in_the_torch_of_these_tests() -> None:
    assert _layout() is not None


@pytest.fixture(params=["read", "asked"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether memory is read; with torch asked for every tensor, each of these tests has to end the same."""
    if request.param == "asked":
        monkeypatch.setattr(same_tensors, "_layout", lambda: None)
    return request.param == "read"


class Own(torch.Tensor):
    pass


def set_class(tensor: Any) -> None:
    tensor.__class__ = Own


def write(place: Any, name: str, value: Any) -> None:
    setattr(place, name, value)


def swap(cache: Cache) -> None:
    torch.utils.swap_tensors(cache.keys[1], torch.ones(4, 3))


def one_written_to(cache: Cache) -> None:
    cache.layers[1].values.mul_(torch.ones(1, requires_grad=True))


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3, 4)


def misaligned() -> torch.Tensor:
    return torch.ones(13)[1:].reshape(3, 4)


OTHERS: dict[str, Callable[[Cache], Any]] = {
    **{
        f"change {at} in a list": lambda cache, change=change: change(cache.keys[1])
        for at, change in enumerate(_CHANGES)
    },
    **{
        f"change {at}": lambda cache, change=change: change(cache.layers[1].values)
        for at, change in enumerate(_CHANGES)
    },
    "shared with processes": lambda cache: cache.keys[1].share_memory_(),
    "another's memory": swap,
    "another class": lambda cache: set_class(cache.keys[1]),
    "needs gradients by what is written": one_written_to,
    "storage of another size": lambda cache: cache.layers[2].values.untyped_storage().resize_(0),
    "longer": lambda cache: cache.keys.append(torch.ones(3, 4)),
    "shorter": lambda cache: cache.keys.pop(),
    "another list": lambda cache: write(cache, "keys", [torch.ones(3, 4) for _ in cache.keys]),
    "a list of the same": lambda cache: write(cache, "keys", [*cache.keys]),
    "a tuple": lambda cache: write(cache, "keys", (*cache.keys,)),
    "turned around": lambda cache: cache.keys.reverse(),
    "the same twice": lambda cache: cache.keys.__setitem__(0, cache.keys[1]),
    "the same twice, in both": lambda cache: cache.keys.__setitem__(0, cache.layers[1].values),
    "another, alike": lambda cache: cache.keys.__setitem__(0, torch.ones(3, 4)),
    "another, of another shape": lambda cache: cache.keys.__setitem__(0, torch.ones(4, 3)),
    "another, of another type": lambda cache: write(cache.layers[0], "values", torch.ones(3, 4).half()),
    "another, that is trained": lambda cache: write(cache.layers[0], "values", torch.ones(3, 4, requires_grad=True)),
    "another, of inference": lambda cache: write(cache.layers[0], "values", inference_tensor()),
    "another, misaligned": lambda cache: write(cache.layers[0], "values", misaligned()),
    "a view": lambda cache: write(cache.layers[0], "values", torch.ones(2, 3, 4)[0]),
    "a parameter": lambda cache: write(cache.layers[0], "values", nn.Parameter(torch.ones(3, 4), requires_grad=False)),
    "nothing": lambda cache: write(cache.layers[0], "values", None),
    "a number": lambda cache: cache.keys.__setitem__(0, 1.0),
    "one more attribute": lambda cache: write(cache.layers[0], "length", 3),
    "written to": lambda cache: cache.keys[0].zero_(),
    "read, viewed and used": lambda cache: [cache.keys[0].numpy(), cache.keys[0].t(), cache.keys[0] * 2],
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_is_done_to_a_tensor_or_put_in_its_place_is_seen_as_where_torch_is_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts: list[Any] = []
    for layout in (_layout(), None):
        monkeypatch.setattr(same_tensors, "_layout", lambda layout=layout: layout)
        cache = Cache()
        entry, patch = taken(cache)
        warm(entry, cache)
        assert known(patch) == (8 if layout else 0)
        kept = OTHERS[name](cache)
        for _ in range(2):
            entry(cache)
        verdicts.append((patch.dispatch.hits, dict(patch.dispatch.fallbacks)))
        del kept
    assert verdicts[0] == verdicts[1]


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "watched operators": Watching,
    "watched functions": BaseTorchFunctionMode,
    "dual numbers": torch.autograd.forward_ad.dual_level,
    "another device": lambda: torch.device("meta"),
    "nothing": nullcontext,
}


@pytest.mark.parametrize("name", AROUND)
def test_the_state_of_the_thread_counts_for_the_same_tensors_too(name: str, read: bool) -> None:
    cache = Cache()
    entry, patch = taken(cache)
    warm(entry, cache)
    with AROUND[name]():
        entry(cache)
    entry(cache)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (
        WARM + 1 + (name == "nothing"),
        name != "nothing",
    )


def test_under_a_transform_the_original_runs_for_the_same_tensors_too(read: bool) -> None:
    cache = Cache()
    entry, patch = taken(cache)
    warm(entry, cache)

    def batched(x: torch.Tensor) -> torch.Tensor:
        entry(cache)
        return x

    torch.func.vmap(batched)(torch.ones(2))
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (WARM, {"transform": 1})


def test_beside_a_token_that_is_new_in_every_call_the_cache_is_known(read: bool) -> None:
    cache = Cache()
    entry, patch = taken(torch.ones(3, 4), cache)
    for _ in range(2 * WARM):
        entry(torch.ones(3, 4), cache)
    assert known(patch) == (8 if read else 0)
    entry(cache.keys[0], cache)
    entry(torch.ones(4, 4), cache)
    entry(torch.ones(3, 4, requires_grad=True), cache)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (2 * WARM, 3)
    entry(torch.ones(3, 4), cache)
    assert (patch.dispatch.hits, known(patch)) == (2 * WARM + 1, 8 if read else 0)


def test_another_cache_is_known_in_time_and_two_in_turns_are_taken(read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.fix.patch._LOOK_AGAIN", 20)
    one, other = Cache(), Cache()
    entry, patch = taken(one)
    warm(entry, one)
    for at in range(60):
        entry((one, other)[at % 2])
    for _ in range(40):
        entry(other)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (WARM + 100, 0)
    assert known(patch) == (8 if read else 0)


def test_another_kind_of_call_in_between_leaves_the_cache_known() -> None:
    cache, x = Cache(), torch.ones(3)
    entry, patch = taken(cache)
    patch.dispatch.learning = True
    entry(x)
    patch.dispatch.learning = False
    entry(x)
    warm(entry, cache)
    for _ in range(3):
        entry(cache)
        entry(x)
        assert known(patch) == 8
    assert not patch.dispatch.fallbacks


def test_what_changes_in_the_program_is_seen_with_the_same_tensors_too(read: bool) -> None:
    class Net(nn.Module):
        scale = 1.0

        def forward(self, cache: Any) -> Any:
            return cache.keys[0] * self.scale

    net, cache = Net().eval(), Cache()
    patch = ForwardPatch(net, lambda original: lambda cache: original(cache))
    patch.enable()
    patch.dispatch.learning = True
    net(cache)
    patch.dispatch.learning = False
    for _ in range(WARM):
        net(cache)
    hits = patch.dispatch.hits
    net.train()
    net(cache)
    assert (patch.dispatch.hits, patch.dispatch.fallbacks) == (hits, {"training mode": 1})


def test_only_plain_tensors_of_which_autograd_keeps_nothing_are_told_so() -> None:
    plain, once = torch.ones(3, 4), torch.ones(3, 4).requires_grad_().requires_grad_(False)
    with torch.inference_mode():
        inferred = torch.ones(3, 4)
    others = [
        torch.ones(3, 4, requires_grad=True), once, plain[0], torch.ones(1, 1, 1, 1, 1, 1), plain.to_sparse(),
        torch.Tensor._make_subclass(Own, plain), torch.ones(3, 4, requires_grad=True) * 2, inferred,
    ]  # fmt: skip
    assert can_be_told([plain, *others, torch.zeros(0), torch.ones(()), torch.ones(2, dtype=torch.int8)]) == [
        0,
        9,
        10,
        11,
    ]


def test_no_tensor_is_kept_alive_and_all_can_be_exchanged() -> None:
    cache = Cache()
    entry, patch = taken(cache)
    warm(entry, cache)
    assert known(patch) == 8
    gone = [weakref.ref(cache.layers[0].values), weakref.ref(cache.keys[3])]
    del cache.layers[0].values, cache.keys[3]
    gc.collect()
    assert [one() for one in gone] == [None, None]
    first, second = cache.keys[:2]
    torch.utils.swap_tensors(first, second)


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Of threads."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("short_turns")
def test_threads_with_a_cache_each_get_what_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.fix.patch._LOOK_AGAIN", 3)
    entry, patch = taken(Cache())
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(40):
            mine = Cache()
            wrong.extend(mine for _ in range(20) if entry(mine)[0] is not mine)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    assert (patch.dispatch.hits, patch.dispatch.fallbacks.total()) == (3 * 40 * 20, 0)
