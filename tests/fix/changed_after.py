"""A small program, what may be changed about it after a candidate was applied, and what each patch has to make of that.

A patch stands for a module and all that is in it. A change of something that one of these modules computes with must send
the call to the original; any other change is none of the patch's business, and sends nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as every_module

from lanewise.fix.gate.correctness import patches_of
from lanewise.fix.patch import ForwardPatch

SWITCH = True
SEEN: list[int] = []


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.scale = 0.125

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.out(y.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.drop = nn.LayerNorm(64), Attention(), nn.Dropout(0.5)
        self.mlp, self.last = Mlp(), nn.RMSNorm(64)
        self.options = {"gain": 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.norm(x)))
        y = self.last(x + self.mlp(x)) * self.options["gain"]
        return y if SWITCH else -y


Undo = Callable[[], Any]


class Change(NamedTuple):
    """One change.

    Attributes:
        of: the modules that compute with what is changed; none if it is read each time, as the values of parameters are.
        make: makes it, and gives what takes it back.
    """

    of: Callable[[Block], Sequence[nn.Module]]
    make: Callable[[Block], Undo]


def replaced(owner: Callable[[Block], Any], name: str, value: Callable[[Block], Any]) -> Callable[[Block], Undo]:
    """An attribute is set to something else."""

    def make(net: Block) -> Undo:
        held = owner(net)
        before = getattr(held, name)
        setattr(held, name, value(net))
        return lambda: setattr(held, name, before)

    return make


def _zeros(net: Block) -> nn.Parameter:
    return nn.Parameter(torch.zeros_like(net.attention.out.weight), requires_grad=False)


def _in_place(net: Block) -> Undo:
    net.last.weight.data.mul_(4)
    return lambda: net.last.weight.data.mul_(0.25)


def _in_dictionary(net: Block) -> Undo:
    net.options["gain"] = 2.0
    return lambda: net.options.update(gain=1.0)


def _in_training(net: Block) -> Undo:
    net.drop.train()
    return lambda: net.drop.eval()


def _switched(net: Block) -> Undo:
    globals()["SWITCH"] = False
    return lambda: globals().update(SWITCH=True)


def _deterministic(net: Block) -> Undo:
    torch.use_deterministic_algorithms(True, warn_only=True)
    return lambda: torch.use_deterministic_algorithms(False)


def _trainable(net: Block) -> Undo:
    net.requires_grad_(True)
    return lambda: net.requires_grad_(False)


def _hooked(module: Any, args: Any, result: Any) -> Any:
    SEEN.append(1)
    return result * 2


def _every(net: Block) -> Sequence[nn.Module]:
    return list(net.modules())


CHANGES: dict[str, Change] = {
    "mode of a part": Change(lambda net: [net.drop], _in_training),
    "attribute": Change(lambda net: [net.attention], replaced(lambda net: net.attention, "scale", lambda net: 0.5)),
    "attribute of a norm": Change(lambda net: [net.norm], replaced(lambda net: net.norm, "eps", lambda net: 1.0)),
    "value in a dictionary": Change(lambda net: [net], _in_dictionary),
    "hook on a norm": Change(lambda net: [net.norm], lambda net: net.norm.register_forward_hook(_hooked).remove),
    "hook inside of a part": Change(
        lambda net: [net.mlp.up], lambda net: net.mlp.up.register_forward_hook(_hooked).remove
    ),
    "hook of every module": Change(
        _every, lambda net: every_module.register_module_forward_hook(lambda module, args, y: y * 1.5).remove
    ),
    "method of a class": Change(
        lambda net: [net.attention],
        replaced(lambda net: Attention, "forward", lambda net: lambda self, x: self.out(x) * 2),
    ),
    "method of the class itself": Change(
        lambda net: [net], replaced(lambda net: Block, "forward", lambda net: lambda self, x: self.norm(x) * 2)
    ),
    "function of torch's": Change(
        lambda net: [net.norm], replaced(lambda net: nn.functional, "layer_norm", lambda net: lambda x, *given: x * 2)
    ),
    "global": Change(lambda net: [net], _switched),
    "part": Change(lambda net: [net.mlp], replaced(lambda net: net.mlp, "act", lambda net: nn.ReLU().eval())),
    "parameter": Change(lambda net: [net.attention.out], replaced(lambda net: net.attention.out, "weight", _zeros)),
    "parameters that need gradients": Change(_every, _trainable),
    "setting of the process": Change(_every, _deterministic),
    "data of a parameter": Change(
        lambda net: [],
        replaced(lambda net: net.norm.weight, "data", lambda net: torch.full_like(net.norm.weight, 2.0)),
    ),
    "values of a parameter": Change(lambda net: [], _in_place),
}


def what_is_wrong_after_changes(net: Block, x: torch.Tensor, variant: Any) -> list[str]:
    """What each change, and taking it back, leads to that it must not; the variant is on, and knows the call."""
    wrong: list[str] = []
    patches = patches_of(variant)
    for what, change in CHANGES.items():
        SEEN.clear()
        before = _counted(patches)
        undo = change.make(net)
        try:
            if not agree(net, x, variant):
                wrong.append(f"{what}: another result")
            for patch, (hits, others), (hits_now, others_now) in zip(patches, before, _counted(patches), strict=True):
                name, concerned = type(patch.target).__name__, any(one in change.of(net) for one in _covered(patch))
                if concerned and hits_now > hits:
                    wrong.append(f"{what}: {name} took the fast path")
                if not concerned and others_now > others:
                    wrong.append(f"{what}: {name} ran the original, which the change does not concern")
            if "hook on" in what and not SEEN:
                wrong.append(f"{what}: not called")
        finally:
            undo()
        before = _counted(patches)
        if not agree(net, x, variant):
            wrong.append(f"{what}, taken back: another result")
        if [others for _, others in _counted(patches)] != [others for _, others in before]:
            wrong.append(f"{what}, taken back: the original runs all the same")
    return wrong


def _covered(patch: ForwardPatch) -> list[nn.Module]:
    return list(patch.target.modules())


def _counted(patches: Sequence[ForwardPatch]) -> list[tuple[int, int]]:
    """Calls that took the fast path of each, and those that did not."""
    return [(patch.dispatch.hits, patch.dispatch.fallbacks.total()) for patch in patches]


def agree(net: nn.Module, x: torch.Tensor, variant: Any) -> bool:
    """With the candidate as without, for the same random numbers."""
    torch.manual_seed(1)
    found = net(x)
    variant.disable()
    torch.manual_seed(1)
    expected = net(x)
    variant.enable()
    return torch.allclose(found, expected, atol=1e-3, rtol=1e-3)


def learn(net: nn.Module, x: torch.Tensor, variant: Any) -> None:
    """Put a variant on, and let it prove the call."""
    variant.enable()
    for patch in patches_of(variant):
        patch.dispatch.learning = True
    for _ in range(2):
        net(x.clone())
    for patch in patches_of(variant):
        patch.dispatch.learning = False
