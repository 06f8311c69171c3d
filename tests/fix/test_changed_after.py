"""What is changed after a candidate was applied is followed, by every patch that it concerns and by no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Several
from lanewise.fix.guard.ground import Ground
from lanewise.fix.patch import ForwardPatch
from tests.fix.changed_after import CHANGES, Block, learn, what_is_wrong_after_changes


def _same(module: nn.Module) -> ForwardPatch:
    return ForwardPatch(module, lambda original: lambda *args: original(*args))


VARIANTS: dict[str, Callable[[Block], Any]] = {
    "the whole": _same,
    "a norm": lambda net: _same(net.norm),
    "parts": lambda net: Several([_same(net.norm), _same(net.last), _same(net.mlp)]),
    "parts in the whole": lambda net: Several([_same(net.norm), _same(net.mlp), _same(net)]),
}


def applied(name: str) -> tuple[Block, torch.Tensor, Any]:
    net, x = Block().eval().requires_grad_(False), torch.randn(2, 3, 64)
    variant = VARIANTS[name](net)
    learn(net, x, variant)
    return net, x, variant


@pytest.mark.parametrize("name", VARIANTS)
def test_a_change_sends_calls_to_the_original_where_it_concerns_them_and_nowhere_else(name: str) -> None:
    assert not what_is_wrong_after_changes(*applied(name))


def test_a_guard_that_looks_at_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All changes but those of the process, which is part of the kind of a call."""
    net, x, variant = applied("the whole")
    monkeypatch.setattr(Ground, "look", lambda self, grad, holders: ("", None))
    found = what_is_wrong_after_changes(net, x, variant)
    missed = {what for what, change in CHANGES.items() if change.of(net)} - {"setting of the process"}
    assert {one.split(":")[0] for one in found if "took the fast path" in one} == missed
