"""Calls that were seen before: which ones are recognised, and what reaches the launcher (a recorded one, on the CPU)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lanewise.kernels.dispatch import eligibility as guard
from lanewise.kernels.dispatch import specialized_calls as quick
from lanewise.kernels.dispatch.specialized_calls import Recent, Step


@pytest.fixture
def calls(monkeypatch):
    """Launches as lists of arguments; tensors live on the CPU."""
    made: list[tuple] = []
    monkeypatch.setattr(quick, "current_device", lambda: 0)
    monkeypatch.setattr(quick, "raw_stream", lambda device: 77)
    monkeypatch.setattr(quick, "_allocator", lambda: (torch.empty_strided, "empty({0}, {1}, dtype={2})"))
    return made


def _remembered(calls, tensors, tail=(5,)):
    return SimpleNamespace(
        bound=lambda *args: calls.append(args), head=("head",), tail=tail, grid=(3, 1, 1), tensors=tensors
    )


def _meta(tensor):
    """What `keep` takes from an output: shape, strides, dtype, and device 0."""
    return SimpleNamespace(
        shape=tensor.shape, stride=tensor.stride, dtype=tensor.dtype, device=SimpleNamespace(index=0)
    )


def test_arguments_reach_the_launcher_in_order(calls):
    recent = Recent("test")
    x, w = torch.randn(4, 8), torch.randn(8)
    out = torch.empty(4, 8, dtype=torch.float16)
    recent.keep("eps", (x, None, w), (_meta(out),), [Step(_remembered(calls, 4), (2, 0, ~0, 0, 0))], (0,))
    (call,) = recent.get("eps")
    other = torch.randn(4, 8)
    y = call(other, None, w)
    assert y.shape == (4, 8)
    assert y.dtype == torch.float16
    assert calls == [(3, 1, 1, 77, "head", w.data_ptr(), other.data_ptr(), y.data_ptr(), other.data_ptr(), 5)]
    assert guard.counts()["test"] == {"kernel": 1}
    assert recent.get("another eps") == ()


def test_equal_tensors_of_one_call_are_told_apart_in_the_next(calls):
    recent = Recent("test", counted=False)
    x, r = torch.randn(4, 8), torch.randn(4, 8)
    for pair in ((x, x), (x, r)):
        recent.keep(None, pair, (_meta(x),), [Step(_remembered(calls, 3), (0, 1, ~0))], (0,))
    distinct, twice = recent.get(None)
    assert distinct(x, x) is None
    assert twice(x, r) is None
    y = distinct(x, r)
    assert calls[0][5:8] == (x.data_ptr(), r.data_ptr(), y.data_ptr())
    y = twice(r, r)
    assert calls[1][5:8] == (r.data_ptr(), r.data_ptr(), y.data_ptr())
    assert "test" not in guard.counts()


def test_several_launches_and_results(calls):
    recent = Recent("test")
    x = torch.randn(4, 8)
    steps = [Step(_remembered(calls, 2), (0, ~1)), Step(_remembered(calls, 2, ()), (~1, ~0))]
    recent.keep(None, (x,), (_meta(x), _meta(torch.empty(2))), steps, (0, None))
    (call,) = recent.get(None)
    y, none = call(x)
    assert none is None
    assert calls[0][5] == x.data_ptr()
    assert calls[0][6] == calls[1][5] != y.data_ptr()
    assert calls[1][6] == y.data_ptr()


def test_what_is_not_recognised(calls, monkeypatch):
    recent = Recent("test")
    storage = torch.randn(64)
    x = storage[:32].view(4, 8)
    recent.keep(None, (x, None), (_meta(x),), [Step(_remembered(calls, 2), (0, ~0))], (0,))
    (call,) = recent.get(None)
    assert call(x, None) is not None
    for other in (
        x.double(),
        torch.randn(8, 4).t(),
        torch.randn(5, 8),
        storage[1:33].view(4, 8),  # not aligned
        x.clone().requires_grad_(),
        torch.nn.Parameter(x, requires_grad=False),
        None,
        3,
    ):
        assert call(other, None) is None
    assert call(x, x) is None
    with torch.autocast("cpu"):
        assert call(x, None) is None
    with torch.inference_mode():
        assert call(x, None) is None
    with FlopCounterMode(display=False):
        assert call(x, None) is None
    seen = []
    torch.vmap(lambda a: seen.append(call(a, None)) or a)(torch.randn(2, 4, 8))
    assert seen == [None]
    assert len(calls) == 1
    from triton import knobs

    hook = lambda metadata: None  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        assert call(x, None) is None
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    monkeypatch.setattr(quick, "current_device", lambda: 1)
    recent.clear()
    assert recent.get(None) == ()


def test_few_are_kept_and_the_latest_is_tried_first(calls):
    recent = Recent("test")
    for rows in range(1, 12):
        x = torch.randn(rows, 8)
        recent.keep(None, (x,), (_meta(x),), [Step(_remembered(calls, 2), (0, ~0))], (0,))
    kept = recent.get(None)
    assert len(kept) == 8
    assert kept[0](torch.randn(11, 8)) is not None
    assert all(call(torch.randn(1, 8)) is None for call in kept)


def test_nothing_is_kept_without_a_direct_launch(calls):
    recent = Recent("test")
    x = torch.randn(4, 8)
    recent.keep(None, (x,), (_meta(x),), [Step(None, (0, ~0))], (0,))
    indirect = SimpleNamespace(bound=None)
    recent.keep(None, (x,), (_meta(x),), [Step(indirect, (0, ~0))], (0,))
    assert recent.get(None) == ()


def test_a_tensor_that_requires_gradients_is_taken_only_where_none_are_recorded(calls):
    recent = Recent("test")
    x = torch.randn(4, 8, requires_grad=True)
    with torch.no_grad():
        recent.keep(None, (x,), (_meta(x),), [Step(_remembered(calls, 2), (0, ~0))], (0,))
        (call,) = recent.get(None)
        assert call(x) is not None
        assert call(x.detach()) is None
    assert call(x) is None
    assert len(calls) == 1
