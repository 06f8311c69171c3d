"""Programs in which the host waits for the device without need."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step, linears
from benchmarks.replay.pairs.models import training

__all__ = ["PAIRS"]

BF16 = torch.bfloat16


def _synchronize_each_layer(at: Place, fixed: bool, *, width: int, batch: int, layers: int) -> Step:
    stack = linears(at, at.n(layers, 3), at.n(width), BF16)
    x = at.randn(at.n(batch, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
            if not fixed:
                at.wait()
        return y

    return step


def _synchronize_each_step(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, tokens, _ = training(at, width=width, layers=layers, batch=batch, length=256)
    model.requires_grad_(False)

    def step() -> torch.Tensor:
        logits = model(tokens)
        if not fixed:
            at.wait()
        return logits

    return step


def _item_each_layer(at: Place, fixed: bool, *, width: int, batch: int, layers: int) -> Step:
    stack = linears(at, at.n(layers, 3), at.n(width), BF16)
    x = at.randn(at.n(batch, 4), at.n(width), dtype=BF16)
    seen: list[float | torch.Tensor] = []

    def step() -> torch.Tensor:
        seen.clear()
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
            norm = y.norm()
            seen.append(norm if fixed else norm.item())
        return y

    return step


def _statistics_to_host(at: Place, fixed: bool, *, width: int, batch: int, layers: int) -> Step:
    stack = linears(at, at.n(layers, 3), at.n(width))
    x = at.randn(at.n(batch, 4), at.n(width))
    seen: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        seen.clear()
        y = x
        for layer in stack:
            y = torch.tanh(layer(y))
            mean = y.mean(dim=0)
            seen.append(mean if fixed else mean.cpu())
        return y

    return step


def _loss_each_step(at: Place, fixed: bool, *, width: int, layers: int, batch: int, check: bool = False) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=256)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    seen: list[float | torch.Tensor] = [0.0]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        if check and not fixed and not torch.isfinite(value):
            raise FloatingPointError
        value.backward()
        optimizer.step()
        if not check:
            seen[0] = value.detach() if fixed else value.item()
        return value.detach()

    return step


def _accumulate(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        total: float | torch.Tensor = 0.0
        value = torch.zeros(())
        for _ in range(4):
            value = loss() / 4
            value.backward()
            total = total + (value.detach() if fixed else value.item())
        optimizer.step()
        return value.detach()

    return step


def _positive_only(at: Place, fixed: bool, *, size: int, width: int) -> Step:
    x = at.randn(at.n(size, 64))
    stack = linears(at, 6, at.n(width))
    z = at.randn(64, at.n(width))

    def step() -> torch.Tensor:
        y, total = z, torch.zeros((), device=at.device)
        for layer in stack:
            total = total + (torch.where(x > 0, x, 0).sum() if fixed else x[x > 0].sum())
            y = torch.relu(layer(y))
        return total

    return step


def _event_each_step(at: Place, fixed: bool) -> Step:
    stack = linears(at, 12, at.n(2048), BF16)
    x = at.randn(1024, at.n(2048), dtype=BF16)
    event = torch.cuda.Event()

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
        if not fixed:
            event.record()
            event.synchronize()
        return y

    return step


_NO_WAIT = {"fix": "torch.cuda.synchronize() removed", "change": "drop_wait", "codes": ("SYN105",)}
_NO_ITEM = {"change": "drop_wait, remove the copy", "codes": ("SYN101",)}

PAIRS = [
    Pair(
        "sync_each_layer-small",
        partial(_synchronize_each_layer, width=256, batch=32, layers=12),
        **_NO_WAIT,
        options=("shapes", "stack", "plain"),
    ),
    Pair("sync_each_layer-large", partial(_synchronize_each_layer, width=4096, batch=4096, layers=8), **_NO_WAIT),
    Pair("sync_each_layer-medium", partial(_synchronize_each_layer, width=2048, batch=512, layers=16), **_NO_WAIT),
    Pair("sync_each_step-medium", partial(_synchronize_each_step, width=512, layers=4, batch=16), **_NO_WAIT),
    Pair(
        "sync_each_step-large",
        partial(_synchronize_each_step, width=1024, layers=6, batch=64),
        **_NO_WAIT,
        nothing="the device is busy for far longer than the host needs to catch up",
    ),
    Pair(
        "item_each_layer-small",
        partial(_item_each_layer, width=256, batch=32, layers=12),
        fix=".item() in each layer removed, the statistic stays on the device",
        **_NO_ITEM,
        options=("shapes", "full"),
    ),
    Pair(
        "item_each_layer-large",
        partial(_item_each_layer, width=4096, batch=2048, layers=8),
        fix=".item() in each layer removed, the statistic stays on the device",
        **_NO_ITEM,
    ),
    Pair(
        "cpu_each_layer",
        partial(_statistics_to_host, width=1024, batch=512, layers=12),
        fix=".cpu() of a statistic in each layer removed",
        **_NO_ITEM,
        tolerance=1e-2,
    ),
    Pair(
        "loss_item-small",
        partial(_loss_each_step, width=128, layers=2, batch=8),
        fix="loss.item() in each training step removed",
        **_NO_ITEM,
        tolerance=1e-2,
        options=("shapes", "stack"),
    ),
    Pair(
        "loss_item-large",
        partial(_loss_each_step, width=1024, layers=4, batch=32),
        fix="loss.item() in each training step removed",
        **_NO_ITEM,
        tolerance=1e-2,
    ),
    Pair(
        "finite_check-medium",
        partial(_loss_each_step, width=512, layers=3, batch=16, check=True),
        fix="`if not isfinite(loss)` before backward removed",
        change="drop_wait, remove the copy and the check",
        codes=("SYN101",),
        tolerance=1e-2,
    ),
    Pair(
        "accumulate_item",
        partial(_accumulate, width=256, layers=2, batch=16),
        fix="loss.item() of each of four micro-batches removed",
        **_NO_ITEM,
        tolerance=1e-2,
        active=6,
    ),
    Pair(
        "boolean_index",
        partial(_positive_only, size=1 << 22, width=1024),
        fix="x[x > 0].sum() as where(x > 0, x, 0).sum()",
        change="drop_wait, merge the operations of the index into one",
        codes=("SYN102",),
        tolerance=1e-2,
    ),
    Pair(
        "event_each_step",
        _event_each_step,
        fix="event.synchronize() at the end of each step removed",
        change="drop_wait",
        codes=("SYN106",),
        needs_cuda=True,
    ),
]
