"""What device work would take on another card, in another type, with another batch: how many times as long, by roofline.

Kernels that compute go with the peak rate of their type, kernels that move data with the memory's bandwidth; kernels that
are as short as any kernel stay. Copies from and to the host stay: the bus between them does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.diagnose.select import device_rows
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.datasheet import PEAKS, Peak
from lanewise.replay.change import Change, scale
from lanewise.trace.schema import Kind

__all__ = ["TYPES", "other_bandwidth", "other_batch", "other_card", "other_type"]

TYPES = ("bf16", "fp16", "tf32")

_HALF = "c10::BFloat16"
_MATRIX = ("gemm", "gemm helper", "convolution", "attention")


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Device work of the steady steps by what binds it.

    Attributes:
        rows: rows of `Trace.device_work`. computing, moving: which are bound by the units, by the memory.
        dtype: torch's name of the type that each computes in, "" where it is not known.
        plain: whether each is matrix work that runs without tensor cores.
    """

    rows: np.ndarray
    computing: np.ndarray
    moving: np.ndarray
    dtype: np.ndarray
    plain: np.ndarray


def other_card(facts: Facts, name: str) -> tuple[Change, str]:
    """All device work on another card, by its name; and what that card is.

    Raises:
        UsageError: a card that the table does not hold, several of that name, or a trace of a card without known peaks.
    """
    mine, other = _own_peak(facts), _card(name)
    bounds = _bounds(facts)
    by = np.ones(len(bounds.rows))
    by[bounds.moving] = mine.bandwidth / other.bandwidth
    for dtype in np.unique(bounds.dtype).tolist():
        for plain in (False, True):
            chosen = bounds.computing & (bounds.dtype == dtype) & (bounds.plain == plain)
            by[chosen] = _ratio(mine, other, dtype if dtype else _HALF, plain)
    return scale(facts.trace.device_work[bounds.rows], by), other.card


def _ratio(mine: Peak, other: Peak, dtype: str, plain: bool) -> float:
    now, then = (peak.flop_rate(dtype, tensor_cores=not plain) for peak in (mine, other))
    return now / then if now and then else (mine.half / other.half if mine.half and other.half else 1.0)


def _own_peak(facts: Facts) -> Peak:
    peak = facts.device.peak
    if peak is None:
        device = facts.device.name or "the trace's device"
        raise UsageError(f"what {device} can do at most is not known: say device=2x, how much faster another one is")
    return peak


def _card(name: str) -> Peak:
    cards = [peak for pattern, peak in PEAKS if pattern.search(name) or name.lower() == peak.card.lower()]
    if not cards:
        cards = [peak for _, peak in PEAKS if name.lower() in peak.card.lower()]
    if len(cards) == 1:
        return cards[0]
    known = ", ".join(peak.card for peak in (cards or [peak for _, peak in PEAKS]))
    raise UsageError(f"{name} is one of several cards: {known}" if cards else f"no card {name!r}; known: {known}")


def other_bandwidth(facts: Facts, factor: float) -> Change:
    """Device memory that is faster by a factor: what it limits takes that much less."""
    bounds = _bounds(facts)
    return scale(facts.trace.device_work[bounds.rows[bounds.moving]], 1 / factor)


def other_type(facts: Facts, dtype: str) -> Change:
    """Work in fp32 done in a smaller type: matrix work at that type's peak, half the bytes for what moves data. `tf32`
    changes matrix work on plain units only.

    Raises:
        UsageError: nothing runs in fp32.
    """
    bounds = _bounds(facts)
    peak = facts.device.peak
    by = np.ones(len(bounds.rows))
    single = bounds.dtype == "float"
    if dtype == "tf32":
        gain = peak.fp32 / peak.tf32 if peak and peak.tf32 else 1 / 8
        by[bounds.computing & bounds.plain] = gain
    else:
        half, tf32, fp32 = (peak.half, peak.tf32, peak.fp32) if peak else (2.0, 1.0, 1 / 8)
        on_tensor_cores = (tf32 or fp32) / half if half else 0.5
        by[bounds.computing & single & ~bounds.plain] = min(1.0, on_tensor_cores)
        by[bounds.computing & bounds.plain] = fp32 / half if half else 0.5
        by[bounds.moving & single] = 0.5
    changed = by < 1
    if not changed.any():
        raise UsageError(
            f"dtype={dtype}: no kernel of a steady step is known to run in fp32; record shapes to know more"
        )
    return scale(facts.trace.device_work[bounds.rows[changed]], by[changed])


def other_batch(facts: Facts, factor: float) -> Change:
    """A batch that is larger by a factor: device work takes that much longer, but for the optimizer's, and for kernels as
    far as their grid leaves multiprocessors idle."""
    trace, rows = facts.trace, device_rows(facts)
    step = facts.optimizer_step
    if step is not None:
        rows = rows[~np.isin(trace.links.launch[rows], step.calls)]
    events = trace.device_work[rows]
    args = trace["kernel_args"]
    waves = np.full(len(trace), np.nan)
    waves[args["event"]] = facts.occupancy.waves
    # A grid of less than one wave takes as long as a full one.
    now, then = (np.maximum(waves[events] * part, 1.0) for part in (1.0, factor))
    by = np.where(np.isnan(now), factor, then / now)
    return scale(events, by)


def _bounds(facts: Facts) -> _Bounds:
    trace = facts.trace
    rows = device_rows(facts)
    work = trace.device_work
    size = len(work)
    matrix = facts.is_family(*_MATRIX)
    plain = matrix & (facts.tensor_cores_of_name[trace.name[work]] == 0)
    bound = np.where(matrix, 1, 2)
    dtype = np.full(size, "", dtype=object)
    names = {int(one): "float" if "float" in trace.names[int(one)] else "" for one in np.unique(trace.name[work])}
    dtype[:] = [names[int(one)] for one in trace.name[work]]
    for roof in facts.roofline:
        if roof.work is not None and roof.work.dtype:
            dtype[roof.rows] = roof.work.dtype
        if roof.bound:
            bound[roof.rows] = {"compute": 1, "memory": 2, "launch": 0}[roof.bound]
    bound[facts.is_family("communication")] = 0
    args = trace["copy_args"]
    outside = args["event"][(args["direction"] == "HtoD") | (args["direction"] == "DtoH")]
    bound[np.isin(work, outside) | (trace.kind[work] == Kind.MEMSET)] = 0
    return _Bounds(rows, bound[rows] == 1, bound[rows] == 2, dtype[rows], plain[rows])
