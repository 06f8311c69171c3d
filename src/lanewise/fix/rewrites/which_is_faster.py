"""Which of two ways to compute an operator is faster on this device, for tensors like those of the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.typed_torch import torch

__all__ = ["Faster"]

_fake: Any = torch_part("torch._subclasses.fake_tensor")

_GAIN = 1.05
"""The ratio of the times from which the other way is taken: what is measured twice differs by less."""

_ROUNDS, _WARM_UPS = 7, 2
_ROUND_US, _MOST = 500.0, 20
"""A round of one way lasts so long, us, or is a single call; and has at most so many calls."""

_AHEAD_CYCLES = 4_000_000
"""For which the device waits before a round, so that it never waits for the host in it: 2 ms at 2 GHz."""

_MOST_OF_FREE = 4
"""The tensors of a call take at most this part of the free memory, one over it: a way may need as much again to work."""


class Faster:
    """Asks the device, and remembers: `faster(name, ours, theirs, likes)` says whether ours is.

    Both are called with tensors of the shapes, strides, types and devices of `likes`, in turns. False where there is no
    CUDA device, no memory for it, or one of them fails, which is warned of.
    """

    def __init__(self) -> None:
        self._known: dict[Any, bool] = {}

    def __call__(self, name: str, ours: Callable[..., Any], theirs: Callable[..., Any], likes: Sequence[Any]) -> bool:
        key = (name, *[(tuple(t.shape), tuple(t.stride()), t.dtype, str(t.device)) for t in likes])
        if key not in self._known:
            self._known[key] = _asked(name, ours, theirs, likes)
        return self._known[key]


def _asked(name: str, ours: Callable[..., Any], theirs: Callable[..., Any], likes: Sequence[Any]) -> bool:
    device = likes[0].device
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    size = sum(like.untyped_storage().nbytes() for like in likes)
    if size * _MOST_OF_FREE > torch.cuda.mem_get_info(device)[0]:
        return False
    # The compiler works on tensors without memory.
    with _fake.unset_fake_temporarily(), torch.no_grad(), torch.cuda.device(device):
        tensors = [_like(one) for one in likes]
        try:
            ours_us, theirs_us = _times(lambda: ours(*tensors), lambda: theirs(*tensors))
        except torch.cuda.OutOfMemoryError:
            return False
        except RuntimeError as error:
            why = str(error).partition("\n")[0]
            warnings.warn(f"{name} is left as it is: timing another way for it failed: {why}", stacklevel=1)
            return False
    return theirs_us > _GAIN * ours_us


def _like(like: Any) -> Any:
    """A tensor of that form with values that are neither zero nor random: the program's random numbers stay its own."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(like.shape, like.stride(), strict=True))
    flat = torch.linspace(-1.0, 1.0, size, dtype=torch.float32, device=like.device).to(like.dtype)
    return flat.as_strided(tuple(like.shape), tuple(like.stride()))


def _times(*ways: Callable[[], Any]) -> list[float]:
    """Median time of a call of each way on the device, us, in turns."""
    calls: list[int] = []
    for way in ways:
        for _ in range(_WARM_UPS):
            way()
        calls.append(max(1, min(_MOST, int(_ROUND_US / max(_round(way, 1), 1.0)))))
    rounds = [[_round(way, count) for way, count in zip(ways, calls, strict=True)] for _ in range(_ROUNDS)]
    return [median(one) for one in zip(*rounds, strict=True)]


def _round(way: Callable[[], Any], calls: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_AHEAD_CYCLES)  # pyright: ignore[reportPrivateUsage]
    begin.record()
    for _ in range(calls):
        way()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / calls
