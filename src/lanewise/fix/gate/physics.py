"""T5: nothing is faster than the machine can multiply. What seems to be does not do the work."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from lanewise.fix.gate.worklist import WorkList
from lanewise.fix.subject import Subject
from lanewise.measure.peaks import peak_of
from lanewise.record.torched import torch_part

__all__ = ["floor_us", "impossible"]

torch: Any = torch_part()

# A measured rate is not a limit: caches, clocks and better shapes may beat it by this much.
_MARGIN = 2.0
_SIZE, _TRIES = 512, 6


def floor_us(subject: Subject, work: WorkList) -> float:
    """Shortest time in which the machine can do the matrix work of one call, us; 0 where its rate is not known."""
    rate = _card_rate(subject.device.index or 0) if subject.cuda else _host_rate(torch.get_num_threads())
    return work.flop / rate * 1e6 if rate and work.flop else 0.0


def impossible(after_us: float, floor: float) -> str:
    """Why a time cannot be, "" if it can."""
    if floor and after_us < floor:
        return (
            f"{after_us:.3g} us are less than the {floor:.3g} us that the matrix work takes at this machine's best rate"
        )
    return ""


@cache
def _card_rate(index: int) -> float:
    properties = torch.cuda.get_device_properties(index)
    peak = peak_of(properties.name, properties.multi_processor_count)
    return max(peak.half, peak.fp8, peak.tf32) if peak is not None else 0.0


@cache
def _host_rate(threads: int) -> float:
    """FLOP/s of a square product, the best of a few and of two types, with a margin; `threads` keys the cache."""
    best = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(_SIZE, _SIZE).to(dtype)
        torch.mm(x, x)
        for _ in range(_TRIES):
            start = time.perf_counter()
            torch.mm(x, x)
            best = max(best, 2 * _SIZE**3 / (time.perf_counter() - start))
    return best * _MARGIN
