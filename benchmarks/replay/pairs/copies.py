"""Programs that move data between host and device in a slow way."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step, frozen, linears
from benchmarks.replay.pairs.models import mlp

__all__ = ["PAIRS"]

BF16 = torch.bfloat16


def _pageable(at: Place, fixed: bool, *, rows: int, width: int, layers: int) -> Step:
    stack = linears(at, layers, at.n(width), BF16)
    batches = [torch.randn(at.n(rows, 4), at.n(width)).to(BF16) for _ in range(2)]
    if fixed and at.cuda:
        batches = [batch.pin_memory() for batch in batches]
    turn = [0]

    def step() -> torch.Tensor:
        turn[0] ^= 1
        y = batches[turn[0]].to(at.device, non_blocking=fixed)
        for layer in stack:
            y = F.gelu(layer(y))
        return y

    return step


def _prefetch(at: Place, fixed: bool, *, rows: int, width: int, layers: int) -> Step:
    stack = linears(at, layers, at.n(width), BF16)
    batches = [torch.randn(at.n(rows, 4), at.n(width)).to(BF16).pin_memory() for _ in range(2)]
    places = [torch.empty_like(batch, device=at.device) for batch in batches]
    side = torch.cuda.Stream()
    ready = [torch.cuda.Event(), torch.cuda.Event()]
    used = [torch.cuda.Event(), torch.cuda.Event()]
    turn = [0]

    def fetch(at_: int) -> None:
        with torch.cuda.stream(side):
            side.wait_event(used[at_])
            places[at_].copy_(batches[at_], non_blocking=True)
            ready[at_].record()

    def step() -> torch.Tensor:
        now = turn[0]
        turn[0] ^= 1
        if fixed:
            torch.cuda.current_stream().wait_event(ready[now])
            fetch(now ^ 1)
        else:
            places[now].copy_(batches[now], non_blocking=True)
        y = places[now]
        for layer in stack:
            y = F.gelu(layer(y))
        if fixed:
            used[now].record()
        return y

    if fixed:
        fetch(0)
    return step


def _noise_on_host(at: Place, fixed: bool, *, rows: int, width: int) -> Step:
    stack = linears(at, 8, at.n(width))
    x = at.randn(at.n(rows, 4), at.n(width))

    def step() -> torch.Tensor:
        noise = torch.randn(x.shape, device=at.device) if fixed else torch.randn(x.shape).to(at.device)
        y = x + 0.1 * noise
        for layer in stack:
            y = torch.relu(layer(y))
        return y

    return step


def _small_copies(at: Place, fixed: bool, *, number: int) -> Step:
    fields = [torch.randn(64) for _ in range(at.n(number, 6))]
    stack = linears(at, 4, 64)

    def step() -> torch.Tensor:
        if fixed:
            moved = torch.cat(fields).to(at.device).view(len(fields), 64)
        else:
            moved = torch.stack([field.to(at.device) for field in fields])
        for layer in stack:
            moved = torch.relu(layer(moved))
        return moved

    return step


def _model_moved(at: Place, fixed: bool, *, width: int, layers: int) -> Step:
    model = frozen(mlp(at.n(width), at.n(layers, 2)), at)
    x = at.randn(at.n(256, 4), at.n(width))

    def step() -> torch.Tensor:
        if not fixed:
            model.to(at.device)
        y = model(x)
        if not fixed:
            model.to("cpu")
        return y

    return step


def _result_to_host(at: Place, fixed: bool, *, rows: int, width: int) -> Step:
    stack = linears(at, 8, at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)
    place = torch.empty(x.shape, dtype=BF16, pin_memory=at.cuda)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
        if fixed:
            place.copy_(y, non_blocking=True)
        else:
            y.cpu()
        return y

    return step


def _constant_from_list(at: Place, fixed: bool, *, width: int, rows: int) -> Step:
    stack = linears(at, 8, at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)
    scales = [1.0 + k / 64 for k in range(at.n(width))]
    kept = torch.tensor(scales, dtype=BF16, device=at.device)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            scale = kept if fixed else torch.tensor(scales, dtype=BF16, device=at.device)
            y = F.gelu(layer(y)) * scale
        return y

    return step


_PIN = {
    "fix": "pageable batch in pinned memory, copied without blocking",
    "change": "drop_wait, rescale the copy",
    "codes": ("SYN103",),
}
_AHEAD = {
    "fix": "the next batch is copied on a stream of its own",
    "change": "move the copy to another stream",
    "codes": ("SYN104",),
    "needs_cuda": True,
}

PAIRS = [
    Pair("pageable-large", partial(_pageable, rows=4096, width=4096, layers=4), **_PIN, options=("shapes", "stack")),
    Pair("pageable-medium", partial(_pageable, rows=1024, width=1024, layers=16), **_PIN),
    Pair("pageable-tiny", partial(_pageable, rows=64, width=128, layers=24), **_PIN),
    Pair(
        "prefetch-balanced", partial(_prefetch, rows=4096, width=4096, layers=6), **_AHEAD, options=("shapes", "plain")
    ),
    Pair("prefetch-copy_bound", partial(_prefetch, rows=8192, width=4096, layers=1), **_AHEAD),
    Pair(
        "prefetch-host_bound",
        partial(_prefetch, rows=128, width=256, layers=32),
        **_AHEAD,
        nothing="the device waits for the host anyhow; a stream and events only add calls",
    ),
    Pair(
        "noise_on_host",
        partial(_noise_on_host, rows=512, width=1024),
        fix="random numbers drawn on the device",
        change="remove the copy and the host's filling, add a kernel",
        codes=("SYN107",),
        tolerance=None,
    ),
    Pair(
        "small_copies",
        partial(_small_copies, number=48),
        fix="48 copies of 256 bytes as one",
        change="merge the copies",
        codes=("SYN108",),
        options=("shapes", "stack"),
    ),
    Pair(
        "model_moved",
        partial(_model_moved, width=1024, layers=6),
        fix="the model stays on the device",
        change="remove the copies",
        codes=("SYN109",),
        active=4,
    ),
    Pair(
        "result_to_host",
        partial(_result_to_host, rows=4096, width=2048),
        fix="result copied into pinned memory without blocking",
        change="drop_wait, rescale the copy",
        codes=("SYN103",),
    ),
    Pair(
        "constant_from_list",
        partial(_constant_from_list, width=512, rows=1024),
        fix="torch.tensor(list, device=...) in each layer made once",
        change="remove the copies",
        codes=("SYN107", "MEM108", "SYN103"),
    ),
]
