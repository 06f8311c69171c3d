"""Programs whose Python does something else than launching work."""

from __future__ import annotations

import gc
import math
import queue
import threading
import time
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step, linears
from torch.utils.data import DataLoader, Dataset

__all__ = ["PAIRS"]

BF16 = torch.bfloat16


def _asleep(at: Place, fixed: bool, *, width: int, rows: int, layers: int, seconds: float) -> Step:
    stack = linears(at, at.n(layers, 2), at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        if not fixed:
            time.sleep(seconds)
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
        return y

    return step


def _same(at: Place, fixed: bool, *, width: int, rows: int, layers: int) -> Step:
    return _asleep(at, True, width=width, rows=rows, layers=layers, seconds=0.0)


def _counting(at: Place, fixed: bool, *, width: int, rows: int, layers: int, turns: int) -> Step:
    stack = linears(at, at.n(layers, 2), at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
            if not fixed:
                sum(math.sqrt(k) for k in range(turns))
        return y

    return step


def _collecting(at: Place, fixed: bool) -> Step:
    stack = linears(at, 12, at.n(256), BF16)
    x = at.randn(64, at.n(256), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.gelu(layer(y))
        if not fixed:
            gc.collect()
        return y

    return step


def _batches(rows: int, width: int, seconds: float, cuda: bool) -> Iterator[torch.Tensor]:
    """Batches that take their time, as if they were read and decoded; pinned on a GPU."""
    ready = torch.randn(rows, width).to(BF16)
    ready = ready.pin_memory() if cuda else ready
    while True:
        time.sleep(seconds)
        yield ready


def _fetched_ahead(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    waiting: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)

    def fill() -> None:
        for batch in batches:
            waiting.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield waiting.get()


def _loading(at: Place, fixed: bool, *, width: int, rows: int, layers: int, seconds: float, read: bool = False) -> Step:
    stack = linears(at, at.n(layers, 2), at.n(width), BF16)
    batches = _batches(at.n(rows, 4), at.n(width), seconds, at.cuda)
    batches = _fetched_ahead(batches) if fixed else batches

    def step() -> torch.Tensor:
        y = next(batches).to(at.device, non_blocking=True)
        for layer in stack:
            y = F.gelu(layer(y))
        if read:
            y.float().mean().item()
        return y

    return step


class _Samples(Dataset[torch.Tensor]):
    def __init__(self, width: int, seconds: float) -> None:
        self._width, self._seconds = width, seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.full((self._width,), (index % 7) / 7)


def _loader(at: Place, fixed: bool, *, width: int, rows: int, layers: int) -> Step:
    stack = linears(at, layers, at.n(width))
    batches = iter(
        DataLoader(_Samples(at.n(width), 4e-5), at.n(rows, 4), num_workers=4 if fixed and not at.small else 0)
    )

    def step() -> torch.Tensor:
        y = next(batches).to(at.device)
        for layer in stack:
            y = torch.relu(layer(y))
        return y

    return step


_AWAKE = {"fix": "time.sleep in each step removed", "change": "remove the stretch of the host", "codes": ("LAU110",)}
_AHEAD = {
    "fix": "batches fetched by a thread",
    "change": "overlap the stretch with a thread",
    "codes": ("OPT103", "LAU110"),
}

PAIRS = [
    Pair(
        "sleep-short",
        partial(_asleep, width=256, rows=32, layers=8, seconds=1e-3),
        **_AWAKE,
        options=("shapes", "stack"),
    ),
    Pair("sleep-partly_hidden", partial(_asleep, width=4096, rows=4096, layers=8, seconds=2.5e-3), **_AWAKE),
    Pair(
        "sleep-hidden",
        partial(_asleep, width=4096, rows=8192, layers=8, seconds=5e-4),
        **_AWAKE,
        nothing="the device works through its queue meanwhile",
    ),
    Pair(
        "python-small",
        partial(_counting, width=256, rows=32, layers=8, turns=1000),
        fix="a computation in Python in each layer removed",
        change="remove the stretches of the host",
        codes=("LAU110",),
        options=("shapes", "stack"),
    ),
    Pair(
        "python-hidden",
        partial(_counting, width=4096, rows=4096, layers=8, turns=1000),
        fix="a computation in Python in each layer removed",
        change="remove the stretches of the host",
        codes=("LAU110",),
        nothing="the device works through its queue meanwhile",
    ),
    Pair(
        "gc_collect",
        _collecting,
        fix="gc.collect() in each step removed",
        change="remove the stretch of the host",
        codes=("LAU110",),
        active=4,
    ),
    Pair(
        "loading-thread_bound",
        partial(_loading, width=1024, rows=256, layers=8, seconds=3e-3),
        **_AHEAD,
    ),
    Pair("loading-balanced", partial(_loading, width=4096, rows=4096, layers=8, seconds=1.5e-3, read=True), **_AHEAD),
    Pair(
        "loading-small",
        partial(_loading, width=512, rows=256, layers=40, seconds=4e-4),
        **_AHEAD,
        options=("shapes", "stack"),
    ),
    Pair(
        "loading-hidden",
        partial(_loading, width=4096, rows=4096, layers=8, seconds=5e-4),
        **_AHEAD,
        nothing="the device works through its queue meanwhile",
    ),
    Pair(
        "data_loader",
        partial(_loader, width=1024, rows=16, layers=24),
        fix="DataLoader(num_workers=4)",
        change="overlap the stretch with workers",
        codes=("OPT103",),
    ),
    Pair(
        "same-small",
        partial(_same, width=256, rows=32, layers=16),
        fix="none: twice the same program",
        change="",
        nothing="the noise of the measurement",
    ),
    Pair(
        "same-large",
        partial(_same, width=4096, rows=4096, layers=4),
        fix="none: twice the same program",
        change="",
        nothing="the noise of the measurement",
    ),
]
