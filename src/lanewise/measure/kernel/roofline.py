"""How far each operator is from what the card can do: FLOPs and bytes from shapes over device time and datasheet rates.

Per group of calls (same operator, same arguments) the time is that of its kernels, device copies and sets in the steady
steps. Copies between host and device are left out: the bus limits them, not the device.
Three things are said only where they are true: a compute share needs a type and a known card; a bandwidth share needs a
working set that does not fit in the cache, and is left out where the rate exceeds the memory's (data then came from the
cache); a compute rate above the peak is an error of shapes or types, never an achievement.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.kernel.flops import known, work_of
from lanewise.measure.kernel.work import Work
from lanewise.measure.signatures import Signature, Tensor
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Roof", "roofline", "roofline_table"]

_MATRIX_KINDS = {"matmul", "convolution", "attention"}

# A kernel this short, this far from both roofs, is as long as starting and draining the device takes.
_LAUNCH_NS = 5_000
_LAUNCH_SHARE = 0.3

# Timestamps and datasheet clocks are exact to a percent or two.
_IMPOSSIBLE_ABOVE = 1.02

# No rule speaks of an operator below 1 % of the time, and a program has some hundred different calls.
_MOST = 1_000

# Operators that only order the work of their children: never the ones that a kernel belongs to.
_ATEN = r"^(aten::|triton_)"

_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_ELEMENT = re.compile(r"[<, ](float|double|c10::BFloat16|c10::Half)\b")


class Roof(NamedTuple):
    """Calls of one operator with one set of arguments, in steady steps.

    Attributes:
        operator: one of the calls (event id). name: operator name.
        rows: rows of `Trace.device_work` of all calls. calls: number of calls.
        time: device time of all of them, ns.
        work: of one call; None if there is no formula or no shapes.
        flop_rate, byte_rate: achieved, per second; NaN if unknown.
        of_compute: share of the peak for its type; NaN if unknown.
        of_memory: share of the memory's peak; NaN if unknown or served by the cache.
        bound: compute, memory, launch (as long as any kernel takes), or "" if unknown.
        resident: whether the working set fits in the last-level cache, or the rate shows that it came from there.
        impossible: whether the compute rate exceeds the peak: shapes or types are not what ran.
    """

    operator: int
    name: str
    rows: np.ndarray
    calls: int
    time: int
    work: Work | None
    flop_rate: float
    byte_rate: float
    of_compute: float
    of_memory: float
    bound: str
    resident: bool
    impossible: bool


def roofline(facts: Core) -> list[Roof]:
    """Groups, the most expensive first (the first thousand of them); communication and unlinked work are left out."""
    trace, links = facts.trace, facts.trace.links
    work = trace.device_work
    chosen = facts.in_steady_step[work] & ~facts.is_family("communication") & (links.operator >= 0)
    rows = np.flatnonzero(chosen & ~_host_copies(facts))
    if len(rows) == 0:
        return []
    owner = _owners(facts, links.operator[rows])
    calls, call_of_row = np.unique(owner, return_inverse=True)
    example, group_of_call = facts.signatures.groups(calls)
    group = group_of_call[call_of_row]
    number = np.bincount(group_of_call, minlength=len(example))
    duration = trace.duration[work[rows]]
    time = np.bincount(group, weights=duration, minlength=len(example)).astype(np.int64)
    matrix = facts.is_family("gemm", "convolution", "attention", "gemm helper")[rows]
    matrix_time = np.bincount(group, weights=np.where(matrix, duration, 0), minlength=len(example)).astype(np.int64)
    by_group = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[by_group], np.arange(len(example) + 1))
    result: list[Roof] = []
    for at in np.argsort(-time, kind="stable")[:_MOST].tolist():
        mine = rows[by_group[bounds[at] : bounds[at + 1]]]
        operator = int(example[at])
        result.append(_judge(facts, operator, mine, int(number[at]), int(time[at]), int(matrix_time[at])))
    return result


def _host_copies(facts: Core) -> np.ndarray:
    """Copies from or to the host: the bus limits them, not the device. Bool per row of `Trace.device_work`."""
    trace = facts.trace
    result = np.zeros(len(trace.device_work), dtype=bool)
    args = trace["copy_args"]
    outside = args["event"][(args["direction"] == "HtoD") | (args["direction"] == "DtoH")]
    result[np.searchsorted(trace.device_work, outside)] = True
    return result


def _owners(facts: Core, operator: np.ndarray) -> np.ndarray:
    """The operator that the work is counted for: the innermost one with a formula, if it is near; else the
    innermost."""
    trace = facts.trace
    names = np.unique(trace.name[operator])
    has = mask_of(len(trace.names), [int(name) for name in names if known(trace.names[int(name)])])
    missing = ~has[trace.name[operator]]
    if not missing.any():
        return operator
    # A library call may hide its own operator below the one that has shapes (`aten::convolution` over a vendor's name).
    aten = (trace.kind == Kind.OPERATOR) & trace.name_mask(_ATEN)[trace.name]
    above = nearest(facts.host.parent, aten, operator[missing])
    result = operator.copy()
    usable = above >= 0
    near = np.zeros(len(above), dtype=bool)
    near[usable] = [known(trace.name_of(int(event))) for event in above[usable]]
    near[usable] &= facts.host.parent[operator[missing][usable]] == above[usable]
    result[missing] = np.where(near, above, operator[missing])
    return result


def _judge(facts: Core, operator: int, rows: np.ndarray, calls: int, time: int, matrix_time: int) -> Roof:
    trace = facts.trace
    name = trace.name_of(operator)
    call = _with_types(facts, facts.signatures.of(operator), rows)
    work = work_of(name, call)
    peak = facts.device.peak
    blank = Roof(operator, name, rows, calls, time, work, math.nan, math.nan, math.nan, math.nan, "", False, False)
    if work is None or time == 0:
        return blank
    busy = matrix_time if work.kind in _MATRIX_KINDS and matrix_time else time
    flop_rate = math.nan if work.executed is None else work.executed * calls / busy * 1e9
    byte_rate = work.bytes * calls / time * 1e9
    blank = blank._replace(flop_rate=flop_rate, byte_rate=byte_rate)
    if peak is None:
        return blank
    roof = (
        peak.flop_rate(work.dtype, tensor_cores=_tensor_cores(facts, rows)) if work.kind in _MATRIX_KINDS else peak.fp32
    )
    of_compute = flop_rate / roof if roof else math.nan
    of_memory = byte_rate / peak.bandwidth
    resident = work.bytes < peak.l2 or of_memory > 1.0
    least_compute = (work.executed or 0.0) / roof * 1e9 if roof else 0.0
    least_memory = work.bytes / peak.bandwidth * 1e9
    kernels = max(1, len(rows) // max(1, calls))
    short = time / calls / kernels < _LAUNCH_NS and max(least_compute, least_memory) < _LAUNCH_SHARE * time / calls
    bound = "launch" if short else "compute" if least_compute >= least_memory else "memory"
    impossible = of_compute > _IMPOSSIBLE_ABOVE and work.kind in _MATRIX_KINDS
    return blank._replace(
        of_compute=of_compute,
        of_memory=math.nan if resident else of_memory,
        bound=bound,
        resident=resident,
        impossible=impossible,
    )


def _tensor_cores(facts: Core, rows: np.ndarray) -> bool:
    """Whether the matrix kernels run on tensor cores; unknown counts as yes, which asks more of them, not less."""
    trace = facts.trace
    answer = facts.tensor_cores_of_name[trace.name[trace.device_work[rows]]]
    return not bool((answer == 0).any())


def _with_types(facts: Core, call: Signature | None, rows: np.ndarray) -> Signature | None:
    """Tensor lists are recorded without a type; the kernel's name tells the size of an element."""
    if call is None or all(tensor.dtype for tensor in call.tensors) or len(rows) == 0:
        return call
    kernel = facts.trace.name_of(int(facts.trace.device_work[rows[0]]))
    opaque, element = _OPAQUE.search(kernel), _ELEMENT.search(kernel)
    by_size = {"1": "unsigned char", "2": "c10::BFloat16", "4": "float", "8": "double"}
    dtype = by_size.get(opaque[1], "") if opaque else element[1] if element else ""
    if not dtype:
        return call

    def typed(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype else tensor._replace(dtype=dtype)

    inputs = tuple(
        None if value is None else typed(value) if isinstance(value, Tensor) else tuple(typed(part) for part in value)
        for value in call.inputs
    )
    return Signature(inputs, call.concrete)


def roofline_table(facts: Core) -> Columns:
    """One row per group: `operator, event, calls, time, flops, bytes, flop_rate, byte_rate, of_compute, of_memory,
    bound`.

    Times in ns, rates per second, of all calls in the steady steps; NaN where unknown.
    """
    roofs = facts.of(roofline)
    flops = [float("nan") if r.work is None or r.work.flops is None else r.work.flops for r in roofs]
    label = np.empty(len(roofs), dtype=object)
    bound = np.empty(len(roofs), dtype=object)
    label[:] = [r.name for r in roofs]
    bound[:] = [r.bound for r in roofs]
    return Columns(
        {
            "operator": label,
            "event": np.array([r.operator for r in roofs], dtype=np.int64),
            "calls": np.array([r.calls for r in roofs], dtype=np.int64),
            "time": np.array([r.time for r in roofs], dtype=np.int64),
            "flops": np.array(flops, dtype=np.float64),
            "bytes": np.array([r.work.bytes if r.work else math.nan for r in roofs], dtype=np.float64),
            "flop_rate": np.array([r.flop_rate for r in roofs], dtype=np.float64),
            "byte_rate": np.array([r.byte_rate for r in roofs], dtype=np.float64),
            "of_compute": np.array([r.of_compute for r in roofs], dtype=np.float64),
            "of_memory": np.array([r.of_memory for r in roofs], dtype=np.float64),
            "bound": bound,
        }
    )
