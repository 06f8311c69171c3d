"""The card's clock while something is timed: arms that ran at different clocks were not compared alike."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lanewise.record.torched import torch_part

__all__ = ["MOST_APART", "SmClock", "clock_note"]

torch: Any = torch_part()

MOST_APART = 0.02
"""By which the clocks of two arms may differ in a round; more is said."""

_SM = 1
"""NVML_CLOCK_SM of nvml.h."""


class SmClock:
    """Reads the clock of a device's multiprocessors through NVML's C interface, in MHz; 0 where it cannot."""

    def __init__(self, device: Any) -> None:
        self._nvml: Any = None
        self._handle = ctypes.c_void_p()
        if device.type != "cuda":
            return
        with contextlib.suppress(Exception):
            nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            found = nvml.nvmlInit_v2() == 0
            found = found and nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle)) == 0
            self._nvml = nvml if found else None

    def mhz(self) -> float:
        """Now."""
        value = ctypes.c_uint()
        if self._nvml is None or self._nvml.nvmlDeviceGetClockInfo(self._handle, _SM, ctypes.byref(value)) != 0:
            return 0.0
        return float(value.value)


def clock_note(clocks: Mapping[str, Sequence[float]]) -> str:
    """What to say if arms ran at different clocks in more than a fifth of the rounds; "" if not, or if it is not known.

    Rounds are not thrown away for it: a faster program may draw more power, and then run at a lower clock wherever it runs.

    Args:
        clocks: by arm its clock in each round, MHz.
    """
    rounds = min((len(values) for values in clocks.values()), default=0)
    if not rounds or len(clocks) < 2:
        return ""
    table = np.array([values[:rounds] for values in clocks.values()])
    if not table.min() > 0:
        return ""
    apart = table.max(axis=0) / table.min(axis=0) - 1 > MOST_APART
    if apart.mean() <= 0.2:
        return ""
    medians = dict(zip(clocks, np.median(table, axis=1), strict=True))
    low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    return (
        f"the card's clock differed by more than {MOST_APART:.0%} between arms in {int(apart.sum())} of {rounds} rounds: "
        f"{medians[low]:.0f} MHz in {low}, {medians[high]:.0f} in {high}"
    )
