"""How fast the host is at this moment: how long a fixed piece of work takes that is like what PyTorch programs do.

What others do on a machine makes all of a program slower for seconds. Two times that were taken at different moments can
be compared once each is divided by its yardstick: on a virtual machine the step of four programs, as medians of two
seconds, varied by 13 to 24 % (standard deviation of the logarithm), and by 4 to 9 % over a piece of work like this.
"""

from __future__ import annotations

import time
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.timing.clock import quantile

__all__ = ["ASKS_FOR_PACE", "Yardstick"]

ASKS_FOR_PACE = "LANEWISE_PACE"
"""Of the environment: set where a recording is to say how fast the host was."""

_CHAIN, _LOOP = 12, 300
_PIECES = 60
"""Some 10 ms in all."""


class Yardstick:
    """Small operators, a product that stays in the caches, a loop in Python. One thread; nothing random, no gradients."""

    def __init__(self) -> None:
        self._torch: Any = torch_part()
        like = {"dtype": self._torch.float32, "device": "cpu"}
        self._x = self._torch.full((8, 96), 0.5, **like)
        self._weight = self._torch.full((96, 96), 0.01, **like)

    def us(self) -> float:
        """Lower quartile of the time of a piece, us; whatever the program has switched on does not change the work."""
        torch = self._torch
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            self._piece()
            return quantile([self._piece() for _ in range(_PIECES)], 0.25)

    def _piece(self) -> float:
        begun = time.perf_counter()
        y, total = self._x, 0
        for _ in range(_CHAIN):
            y = self._torch.tanh(y @ self._weight + 1)
        for turn in range(_LOOP):
            total += turn
        return (time.perf_counter() - begun) * 1e6
