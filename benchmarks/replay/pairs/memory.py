"""Programs that write more memory than they need, or allocate it in each step."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step, frozen, linears
from benchmarks.replay.pairs.models import mlp, training

__all__ = ["PAIRS"]

BF16 = torch.bfloat16


def _masks_rebuilt(at: Place, fixed: bool, *, length: int, layers: int) -> Step:
    length = at.n(length)
    stack = linears(at, at.n(layers, 3), length)
    x = at.randn(length, length)

    def mask() -> torch.Tensor:
        return torch.triu(torch.full((length, length), float("-inf"), device=at.device), diagonal=1)

    kept = mask()

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = torch.softmax(layer(y) + (kept if fixed else mask()), dim=-1)
        return y

    return step


def _masked_copy(at: Place, fixed: bool, *, batch: int, length: int) -> Step:
    length = at.n(length)
    q = at.randn(at.n(batch, 2), length, 64, dtype=BF16)
    hidden = torch.ones(length, length, dtype=torch.bool, device=at.device).triu(1)

    def step() -> torch.Tensor:
        y = q
        for _ in range(4):
            scores = y @ q.transpose(1, 2)
            scores = scores.masked_fill_(hidden, -1e4) if fixed else scores.masked_fill(hidden, -1e4)
            y = torch.softmax(scores, dim=-1) @ q
        return y

    return step


def _contiguous(at: Place, fixed: bool, *, batch: int, width: int) -> Step:
    x = at.randn(at.n(batch, 2), at.n(width), at.n(width), dtype=BF16)
    weight = at.randn(at.n(width), at.n(width), dtype=BF16) / at.n(width) ** 0.5

    def step() -> torch.Tensor:
        y = x
        for _ in range(6):
            turned = y.transpose(1, 2)
            y = (turned if fixed else turned.contiguous()) @ weight
        return y

    return step


def _cast_again(at: Place, fixed: bool, *, rows: int, width: int) -> Step:
    x = at.randn(at.n(rows), at.n(width), dtype=BF16)
    scales = [at.randn(at.n(width)) for _ in range(8)]

    def step() -> torch.Tensor:
        once = x.float() if fixed else x
        total = torch.zeros(at.n(width), device=at.device)
        for scale in scales:
            total = total + ((once if fixed else x.float()) * scale).sum(dim=0)
        return total

    return step


def _weights_cast(at: Place, fixed: bool, *, width: int, batch: int, layers: int) -> Step:
    weights = [at.randn(at.n(width), at.n(width)) / at.n(width) ** 0.5 for _ in range(at.n(layers, 3))]
    kept = [weight.to(BF16) for weight in weights]
    x = at.randn(at.n(batch), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for weight, low in zip(weights, kept, strict=True):
            y = torch.relu(y @ (low if fixed else weight.to(BF16)))
        return y

    return step


def _autocast_again(at: Place, fixed: bool, *, width: int, batch: int) -> Step:
    layer = torch.nn.Linear(at.n(width), at.n(width), device=at.device)
    x = at.randn(at.n(batch), at.n(width))

    def inner(y: torch.Tensor) -> torch.Tensor:
        if fixed:
            return torch.tanh(layer(y))
        with torch.autocast(at.device.type, dtype=BF16):
            return torch.tanh(layer(y))

    def step() -> torch.Tensor:
        y = x
        with torch.autocast(at.device.type, dtype=BF16, enabled=fixed):
            for _ in range(8):
                y = inner(y)
        loss = y.float().mean()
        layer.weight.grad = None
        loss.backward()
        return loss.detach()

    return step


def _growing(at: Place, fixed: bool, *, batch: int, heads: int, prompt: int, tokens: int) -> Step:
    shape = (at.n(batch, 2), at.n(heads, 2))
    prompt, tokens = at.n(prompt, 8), at.n(tokens, 3)
    start = at.randn(*shape, prompt, 64, dtype=BF16)
    new = at.randn(*shape, 1, 64, dtype=BF16)
    room = torch.zeros(*shape, prompt + tokens, 64, dtype=BF16, device=at.device)
    room[:, :, :prompt] = start

    def step() -> torch.Tensor:
        keys, out = start, new
        for token in range(tokens):
            if fixed:
                room[:, :, prompt + token : prompt + token + 1] = out
                keys = room[:, :, : prompt + token + 1]
            else:
                keys = torch.cat([keys, out], dim=2)
            out = F.scaled_dot_product_attention(new, keys, keys)
        return out

    return step


def _empty_cache(at: Place, fixed: bool, *, width: int, rows: int, layers: int) -> Step:
    stack = linears(at, layers, at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
        if not fixed and at.cuda:
            torch.cuda.empty_cache()
        return y

    return step


def _zero_grad(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=fixed)
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def _new_buffer_filled(at: Place, fixed: bool, *, rows: int, width: int) -> Step:
    model = frozen(mlp(at.n(width), 3), at, BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = model(x)
        for _ in range(4):
            y = y * 0.5 if fixed else y.clone() * 0.5
        return y

    return step


_REBUILT = {"fix": "causal mask built once", "change": "remove the operations", "codes": ("MEM108",)}
_CAT = {"fix": "keys written into room made beforehand", "change": "shorten the copies", "codes": ("MEM107",)}
_ZERO = {
    "fix": "zero_grad(set_to_none=True)",
    "change": "remove the fill, shorten accumulation",
    "codes": ("MEM105",),
    "tolerance": 1e-2,
}

PAIRS = [
    Pair("mask_rebuilt-small", partial(_masks_rebuilt, length=256, layers=12), **_REBUILT, options=("shapes", "stack")),
    Pair("mask_rebuilt-large", partial(_masks_rebuilt, length=4096, layers=4), **_REBUILT),
    Pair(
        "masked_fill",
        partial(_masked_copy, batch=64, length=1024),
        fix="masked_fill as masked_fill_",
        change="remove the copy",
        codes=("MEM103",),
        tolerance=1e-2,
    ),
    Pair(
        "clone",
        partial(_new_buffer_filled, rows=8192, width=2048),
        fix="clone() before a multiplication removed",
        change="remove the copy",
        codes=("MEM104", "MEM103"),
    ),
    Pair(
        "contiguous",
        partial(_contiguous, batch=32, width=1024),
        fix=".contiguous() before each product removed",
        change="remove the copy",
        codes=("MEM104",),
        tolerance=2e-2,
    ),
    Pair(
        "cast_again",
        partial(_cast_again, rows=8192, width=2048),
        fix="one cast to float32 instead of eight",
        change="remove the casts",
        codes=("MEM106",),
    ),
    Pair(
        "weights_cast-large",
        partial(_weights_cast, width=4096, batch=512, layers=8),
        fix="weights kept in bfloat16",
        change="remove the casts",
        codes=("MEM106",),
        tolerance=2e-2,
        options=("shapes", "plain"),
    ),
    Pair(
        "weights_cast-small",
        partial(_weights_cast, width=256, batch=64, layers=16),
        fix="weights kept in bfloat16",
        change="remove the casts",
        codes=("MEM106",),
        tolerance=2e-2,
    ),
    Pair(
        "autocast_again",
        partial(_autocast_again, width=2048, batch=1024),
        fix="one autocast region around the loop: the weight is cast once",
        change="remove the casts",
        codes=("MEM106",),
        tolerance=5e-2,
        options=("shapes", "stack"),
    ),
    Pair("growing_cat-small", partial(_growing, batch=1, heads=8, prompt=128, tokens=16), **_CAT, tolerance=2e-2),
    Pair("growing_cat-large", partial(_growing, batch=16, heads=16, prompt=4096, tokens=8), **_CAT, tolerance=2e-2),
    Pair(
        "empty_cache",
        partial(_empty_cache, width=2048, rows=2048, layers=8),
        fix="torch.cuda.empty_cache() removed",
        change="remove the calls, drop_wait",
        codes=("MEM101",),
        needs_cuda=True,
        options=("shapes", "full"),
    ),
    Pair("zero_grad-large", partial(_zero_grad, width=1024, layers=8, batch=2), **_ZERO, active=4),
    Pair("zero_grad-small", partial(_zero_grad, width=128, layers=3, batch=4), **_ZERO, active=6),
]
