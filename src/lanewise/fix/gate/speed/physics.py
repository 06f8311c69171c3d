"""T5: nothing is faster than the machine can multiply. What seems to be does not do the work."""

from __future__ import annotations

import os
from functools import cache

from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch
from lanewise.fix.work.worklist import WorkList
from lanewise.measure.kernel.datasheet import peak_of

__all__ = ["floor_us", "impossible"]


def floor_us(subject: Subject, work: WorkList) -> float:
    """Shortest time in which the machine can do the matrix work of one call, us; 0 where its rate is not known."""
    if not work.flop:
        return 0.0
    if subject.cuda:
        rate = _card_rate(subject.device.index or 0)
    else:
        rate = _host_rate()
    return work.flop / rate * 1e6 if rate else 0.0


def impossible(after_us: float, floor: float) -> str:
    """Why a time cannot be, "" if it can."""
    if floor and after_us < floor:
        return f"{after_us:.3g} us are less than the {floor:.3g} us that its matrix work takes at the device's highest rate"
    return ""


@cache
def _card_rate(index: int) -> float:
    properties = torch.cuda.get_device_properties(index)
    peak = peak_of(properties.name, properties.multi_processor_count)
    return max(peak.half, peak.fp8, peak.tf32) if peak is not None else 0.0


@cache
def _host_rate() -> float:
    """More FLOP/s than any processor does: two 512-bit FMA units (64 single-precision FLOP per cycle) in every core at
    5 GHz; with matrix tiles (AMX) 2048 in bfloat16. Measuring it would say less: a busy machine looks slow."""
    tiles = False
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            tiles = "amx_tile" in info.read()
    except OSError:
        pass
    return (os.cpu_count() or 1) * 5e9 * (2048 if tiles else 64)
