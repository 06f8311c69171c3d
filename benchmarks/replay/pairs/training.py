"""Training steps: optimizers, gradients, recomputation."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step
from benchmarks.replay.pairs.models import mlp, training

__all__ = ["PAIRS"]


def _optimizer(
    at: Place, fixed: bool, *, slow: str, fast: str, width: int, layers: int, batch: int, length: int = 128
) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=length)
    kind = fast if fixed else slow
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=kind == "foreach", fused=kind == "fused")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def _checkpointing(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=256, again=not fixed)

    def step() -> torch.Tensor:
        model.zero_grad()
        value = loss()
        value.backward()
        return value.detach()

    return step


def _inference(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, tokens, _ = training(at, width=width, layers=layers, batch=batch, length=128)

    def step() -> torch.Tensor:
        if fixed:
            with torch.inference_mode():
                return model(tokens)
        return model(tokens)

    return step


def _lookup(at: Place, fixed: bool, *, words: int, width: int, number: int) -> Step:
    table = at.randn(at.n(words), at.n(width)).requires_grad_()
    tokens = torch.randint(0, at.n(words), (at.n(number, 32),), device=at.device)

    def step() -> torch.Tensor:
        table.grad = None
        rows = F.embedding(tokens, table) if fixed else table[tokens]
        loss = rows.square().mean()
        loss.backward()
        return loss.detach()

    return step


def _clip(at: Place, fixed: bool, *, width: int, layers: int) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=8, length=64)
    parameters = list(model.parameters())

    def step() -> torch.Tensor:
        model.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=fixed)
        return value.detach()

    return step


def _average(at: Place, fixed: bool, *, width: int, layers: int) -> Step:
    weights = [p.to(at.device).detach() for p in mlp(at.n(width), at.n(layers, 3)).parameters()]
    kept = [weight.clone() for weight in weights]

    def step() -> torch.Tensor:
        if fixed:
            torch._foreach_lerp_(kept, weights, 0.01)
        else:
            for mean, weight in zip(kept, weights, strict=True):
                mean.lerp_(weight, 0.01)
        return kept[0]

    return step


_FOREACH = {
    "fix": "AdamW(foreach=True)",
    "change": "merge the operations per kind",
    "codes": ("OPT101",),
    "tolerance": 1e-2,
}
_FUSED = {
    "fix": "AdamW(fused=True)",
    "change": "merge the operations into one",
    "codes": ("OPT102",),
    "tolerance": 1e-2,
}
_PLAIN = {
    "fix": "activation checkpointing removed",
    "change": "remove the second forward",
    "codes": ("OPT105",),
    "tolerance": 1e-2,
}
_MODE = {"fix": "torch.inference_mode()", "change": "shorten the operators", "codes": ("OPT104",), "tolerance": 1e-2}

PAIRS = [
    Pair(
        "adamw_loop-small",
        partial(_optimizer, slow="loop", fast="foreach", width=128, layers=2, batch=8),
        **_FOREACH,
        active=3,
        options=("shapes", "stack"),
    ),
    Pair(
        "adamw_loop-large",
        partial(_optimizer, slow="loop", fast="foreach", width=1024, layers=4, batch=32, length=256),
        **_FOREACH,
        active=3,
    ),
    Pair(
        "adamw_foreach-small",
        partial(_optimizer, slow="foreach", fast="fused", width=128, layers=2, batch=8),
        **_FUSED,
        active=5,
        options=("shapes", "full"),
    ),
    Pair(
        "adamw_foreach-large",
        partial(_optimizer, slow="foreach", fast="fused", width=1024, layers=4, batch=32, length=256),
        **_FUSED,
        active=4,
    ),
    Pair(
        "checkpoint-host_bound",
        partial(_checkpointing, width=256, layers=4, batch=4),
        **_PLAIN,
        active=4,
        options=("shapes", "stack"),
    ),
    Pair("checkpoint-device_bound", partial(_checkpointing, width=1024, layers=3, batch=64), **_PLAIN, active=4),
    Pair(
        "inference_mode-small",
        partial(_inference, width=128, layers=3, batch=4),
        **_MODE,
        options=("shapes", "stack", "plain"),
    ),
    Pair(
        "inference_mode-large",
        partial(_inference, width=1024, layers=4, batch=64),
        **_MODE,
        nothing="the device is the bottleneck, and autograd launches nothing",
    ),
    Pair(
        "index_backward",
        partial(_lookup, words=1000, width=512, number=16384),
        fix="table[tokens] as F.embedding",
        change="rescale the backward of the index",
        codes=("OPT106",),
    ),
    Pair(
        "clip_loop",
        partial(_clip, width=128, layers=3),
        fix="clip_grad_norm_(foreach=True)",
        change="merge the operations per kind",
        codes=("LAU103",),
        tolerance=1e-2,
        active=4,
    ),
    Pair(
        "average_loop",
        partial(_average, width=256, layers=24),
        fix="moving average of weights with foreach",
        change="merge the operations",
        codes=("LAU103",),
    ),
]
