"""The card's clock while something is timed: arms that ran at different clocks were not compared alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lanewise.fix.torch_types import Device
from lanewise.fix.typed_torch import torch
from lanewise.nvml import open_device

__all__ = ["MOST_APART", "clock_note", "sm_clock"]


MOST_APART = 0.02
"""By which the clocks of two arms may differ in a round; more is said."""


def sm_clock(device: Device) -> Callable[[], float]:
    """Reads the clock of a device's multiprocessors now, MHz; 0 where it cannot be read."""
    found = open_device(str(torch.cuda.get_device_properties(device).uuid)) if device.type == "cuda" else None
    return found.sm_mhz if found is not None else lambda: 0.0


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
