"""A patch touches one object, takes only calls that were proven, and leaves no trace."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.errors import UsageError
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import make_subject


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.layer(x) * scale


def marked(original: Any) -> Any:
    """A fast path that can be told from the original."""
    return lambda *args, **kwargs: original(*args, **kwargs) + 100


@pytest.fixture
def net() -> Net:
    return Net().eval().requires_grad_(False)


def patched(net: Net, x: torch.Tensor) -> ForwardPatch:
    patch = ForwardPatch(net, marked)
    patch.enable()
    patch.dispatch.learning = True
    net(x)
    patch.dispatch.learning = False
    patch.dispatch.hits = 0
    return patch


X = torch.ones(2, 4)


def test_only_the_object_is_changed_and_undo_is_exact(net: Net) -> None:
    other = copy.deepcopy(net)
    before, state = net(X), {name: value.clone() for name, value in net.state_dict().items()}
    names = set(vars(net))
    patch = patched(net, X)
    assert torch.equal(net(X), before + 100)
    assert torch.equal(other(X), before), "another instance of the class is not touched"
    assert Net.forward is not net.forward
    assert net.state_dict().keys() == state.keys()
    assert all(torch.equal(net.state_dict()[name], value) for name, value in state.items())
    patch.disable()
    assert torch.equal(net(X), before)
    assert set(vars(net)) == names
    patch.enable()
    patch.enable()
    patch.disable()
    assert torch.equal(net(X), before), "putting on twice is putting on once"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda net: net(torch.ones(3, 4)), "shape"),
        (lambda net: net(torch.ones(4, 2).t()), "strides"),
        (lambda net: net(X.clone().requires_grad_()), "requires_grad"),
        (lambda net: net(X, 2.0), "arguments"),
        (lambda net: net(x=X), "arguments"),
    ],
)
def test_calls_of_another_kind_run_the_original_and_are_counted(net: Net, call: Any, reason: str) -> None:
    expected = call(net)
    patch = patched(net, X)
    assert torch.equal(call(net), expected)
    assert patch.dispatch.fallbacks == {reason: 1}
    assert patch.dispatch.hits == 0


def test_modes_are_part_of_the_kind(net: Net) -> None:
    patch = patched(net, X)
    with torch.no_grad():
        assert float(net(X)[0, 0]) < 50
    with torch.autocast("cpu", torch.bfloat16):
        assert float(net(X)[0, 0]) < 50
    net.train()
    assert float(net(X)[0, 0]) < 50
    assert patch.dispatch.fallbacks == {"grad mode": 1, "autocast": 1, "training mode": 1}
    net.eval().double()
    net(X.double())
    assert patch.dispatch.fallbacks["dtype"] == 1


def test_a_tensor_subclass_is_another_kind(net: Net) -> None:
    class Wrapped(torch.Tensor):
        pass

    patch = patched(net, X)
    net(X.as_subclass(Wrapped))
    assert patch.dispatch.fallbacks == {"arguments": 1}


def test_copies_are_the_module_without_the_patch(net: Net) -> None:
    before = net(X)
    patch = patched(net, X)
    twin = copy.deepcopy(net)
    assert torch.equal(twin(X), before)
    with torch.no_grad():
        twin.layer.bias.add_(1)
    assert not torch.equal(twin(X), before), "the copy computes with its own weights"
    loaded = pickle.loads(pickle.dumps(net))
    assert torch.equal(loaded(X), before)
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(X), before)
    assert torch.equal(net(X), before + 100), "and the module itself keeps it"
    patch.disable()


def test_a_forward_that_somebody_else_put_there_comes_back(net: Net) -> None:
    theirs = lambda x: x * 0 + 7  # noqa: E731 - a plain function on the instance is the point
    net.forward = theirs
    patch = patched(net, X)
    assert float(net(X)[0, 0]) == 107
    patch.disable()
    assert net.forward is theirs


def test_two_patches_come_off_in_reverse(net: Net) -> None:
    before = net(X)
    first, second = patched(net, X), ForwardPatch(net, marked)
    second.enable()
    second.dispatch.learning = True
    assert torch.equal(net(X), before + 200)
    second.disable()
    assert torch.equal(net(X), before + 100)
    first.disable()
    assert torch.equal(net(X), before)


def test_two_patches_undone_in_the_order_in_which_they_were_applied_leave_nothing(net: Net) -> None:
    before, names = net(X), set(vars(net))
    first, second = patched(net, X), ForwardPatch(net, marked)
    second.enable()
    second.dispatch.learning = True
    assert torch.equal(net(X), before + 200)
    second.dispatch.learning = False
    first.disable()
    assert torch.equal(net(X), before), "it was proven on top of what is gone"
    second.disable()
    assert torch.equal(net(X), before)
    assert set(vars(net)) == names
    second.enable()
    assert "forward" in vars(net)
    second.disable()
    assert set(vars(net)) == names


def test_what_somebody_put_on_top_of_a_patch_stays_when_it_is_undone(net: Net) -> None:
    before = net(X)
    patch = patched(net, X)
    below = net.forward
    theirs = lambda x: below(x) + 7  # noqa: E731 - as a user would
    net.forward = theirs
    assert torch.equal(net(X), before + 107)
    patch.disable()
    assert net.forward is theirs
    assert torch.equal(net(X), before + 7)


@pytest.mark.parametrize("kind", ["DistributedDataParallel", "FullyShardedDataParallel"])
def test_distributed_wrappers_are_refused(kind: str) -> None:
    wrapper = type(kind, (nn.Module,), {"__module__": "torch.nn.parallel", "forward": lambda self, x: x})
    with pytest.raises(UsageError, match="before it is wrapped"):
        make_subject(wrapper(), (X,))


def test_what_does_not_fit_is_said_in_one_line(net: Net) -> None:
    with pytest.raises(UsageError, match="do not fit the call"):
        make_subject(net, (X, 1.0, 2.0))
    with pytest.raises(UsageError, match="a module or a function"):
        make_subject(3, (X,))
    with pytest.raises(UsageError, match="at least one real call"):
        make_subject(net, [])
