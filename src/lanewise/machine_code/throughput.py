"""How many clocks the units of a multiprocessor take for what a warp does in one pass through a stretch of code.

The rates are those of compute capability 9.0: of units from the CUDA C++ programming guide (table of arithmetic
instructions), of memory as `benchmarks.machine_code.measure` found them on an H200; what is fitted to a kernel says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from lanewise.machine_code.accesses import Access, touched
from lanewise.machine_code.disassembly import Instruction
from lanewise.machine_code.features import DOUBLE, MULTIPLY_ADDS, SHARED, SPECIAL, SPILLS, Features
from lanewise.measure.kernel.datasheet import Peak

__all__ = ["CLOCK", "KNOWN", "Work", "clocks_of", "is_alu", "is_indexed", "work_of"]

KNOWN = (9, 0)
"""The compute capability whose rates these are."""
CLOCK = 1.98e9
"""Clocks per second under load."""
_SCHEDULERS = 4
_SECTOR, _WARP = 32, 32
_HALF_RATE = ("IMAD",)
_ALU = (
    "IADD",
    "LEA",
    "LOP",
    "SHF",
    "ISETP",
    "SEL",
    "IABS",
    "VIADD",
    "IMNMX",
    "VIMNMX",
    "PRMT",
    "FSETP",
    "FMNMX",
    "PLOP",
)
_CONVERSIONS = ("F2F", "F2I", "I2F", "FRND", *SPECIAL)
_MATRIX = 1.0
"""Of a warp's product of 16 by 8 by 8 numbers in TF32, and of 16 by 8 by 16 in 16 bits."""
_LATENCY = 743
"""From a load to its data, when memory is not busy."""
_IN_A_ROW = 0.83
"""Share of the time that several loads of a thread are on their way: it waits for all before it asks for the next."""
_REACHED = 0.93
"""Share of its datasheet's bandwidth that memory reaches."""
_PORT = 64.0
"""Bytes per clock that a multiprocessor can be sent."""
_DRAM = 64
"""Bytes that memory reads at least."""
_PARTLY = 3.75
"""Of a sector that is written in part; fitted to `transpose` of the planted kernels."""
_SPILLED = 3.7
"""Of a warp's access to local memory of which all lie side by side; fitted to `too_few_registers`."""
_ELSEWHERE = 20
"""Sectors that a warp touches whose threads each index an array of 32 in local memory by a value."""
_TOGETHER = 2.5
"""How far units work at the same time: the exponent of the mean of what each takes, 1 for one after another; from how
memory slows down with few bytes on their way."""


@dataclass(frozen=True, slots=True)
class Work:
    """Of a warp in one pass.

    Attributes:
        issue, integer, multiply, double, convert, tensor: clocks of a multiprocessor for instructions to be issued, and of
            its units. lines: to look up what is loaded. partial: to write sectors in part. shared: rounds of shared memory.
            local: of local memory.
        moved: bytes from and to memory. flying: bytes of them that are on their way at a time.
    """

    issue: float = 0.0
    integer: float = 0.0
    multiply: float = 0.0
    double: float = 0.0
    convert: float = 0.0
    tensor: float = 0.0
    lines: float = 0.0
    partial: float = 0.0
    shared: float = 0.0
    local: float = 0.0
    moved: float = 0.0
    flying: float = 0.0


def work_of(features: Features) -> Work:
    """What a warp does in one pass through a kernel's hottest stretch."""
    body = features.body
    loads = sum(features.loads.values()) + sum(features.staged.values())
    stores = sum(features.stores.values())
    loaded = _sectors(features.reads, features.loads + features.staged, loads)
    asked = sum(bits * number for bits, number in (features.loads + features.staged).items()) / 8 * _WARP
    read = max(asked, loaded * (_DRAM if _wastes(features.reads) else _SECTOR))
    written = sum(bits * number for bits, number in features.stores.items()) / 8 * _WARP
    known_stores = [one for one in features.writes if one.pieces > one.least and one.size < _SECTOR]
    partial = touched(known_stores) if known_stores else 0
    at_a_time = 1 if features.chained is not None else loads
    return Work(
        issue=len(body) / _SCHEDULERS,
        integer=_number(body, is_alu) / 2 + _number(body, is_half_rate) / 2,
        multiply=_number(body, lambda one: one.name in MULTIPLY_ADDS or one.name in ("FADD", "FMUL")) / _SCHEDULERS,
        tensor=_number(body, lambda one: one.name.endswith("MMA") and one.name != "DMMA") * _MATRIX,
        double=_number(body, lambda one: one.name in DOUBLE) / 2,
        convert=_number(body, lambda one: one.name in _CONVERSIONS) * 2,
        lines=sum(access.lines for access in features.reads) + max(0, loads - len(features.reads)),
        partial=partial * _PARTLY + (stores if not known_stores else 0),
        shared=_shared_rounds(features),
        local=sum(map(_local, (one for one in body if one.name in SPILLS))),
        moved=read * features.fresh + written,
        flying=read * features.fresh * (1 if at_a_time <= 1 else _IN_A_ROW) * at_a_time / max(1, loads),
    )


def clocks_of(work: Work, warps: int, busy: int, card: Peak) -> float:
    """Clocks of a multiprocessor for a pass, on average over its warps; 0 if nothing is known to be done.

    Args:
        warps: that it works on at a time. busy: multiprocessors that have work, and share the memory.
    """
    units = [getattr(work, one.name) for one in fields(work) if one.name not in ("moved", "flying")]
    if work.moved:
        share = _REACHED * card.bandwidth / CLOCK / busy
        rates = [share, _PORT] + ([work.flying * warps / _LATENCY] if work.flying else [])
        units.append(work.moved * _mean(1 / rate for rate in rates))
    return _mean(units)


def _mean(values: Iterable[float]) -> float:
    return sum(value**_TOGETHER for value in values if value > 0) ** (1 / _TOGETHER)


def _sectors(accesses: tuple[Access, ...], by_bits: dict[int, int], number: int) -> float:
    """Sectors that are loaded; those of which nothing is known lie side by side."""
    whole = sum(bits * count for bits, count in by_bits.items()) / 8 * _WARP / _SECTOR
    return touched(accesses) + whole * max(0, number - len(accesses)) / max(1, number)


def _wastes(accesses: tuple[Access, ...]) -> bool:
    """Whether of most sectors that are loaded little is used. What lies beside a row that is as far away as only the launch
    knows is used by other warps, or in the next rounds."""
    least = sum(access.least for access in accesses)
    near = all(access.base is None or access.base.far is None for access in accesses)
    return near and touched(accesses) > 2 * least


def _shared_rounds(features: Features) -> float:
    """Rounds at best, and those in vain."""
    best = sum(max(1, one.width // 32) for one in features.body if one.name in SHARED)
    return best + sum(access.pieces - access.least for access in features.shared)


def _local(one: Instruction) -> float:
    """Of an access to local memory: to the thread's frame, or to where a value says."""
    if is_indexed(one):
        return _ELSEWHERE * (_PARTLY if one.name == "STL" else 1.0)
    return _SPILLED


def is_indexed(one: Instruction) -> bool:
    """Whether an access to local memory goes where a value says: not to the frame, which R1 points to."""
    address = next((text for text in one.operands if text.startswith("[")), "")
    return not address.startswith(("[R1]", "[R1+"))


def _number(body: tuple[Instruction, ...], is_one: Callable[[Instruction], bool]) -> int:
    return sum(map(is_one, body))


def is_alu(one: Instruction) -> bool:
    return one.name.startswith(_ALU)


def is_half_rate(one: Instruction) -> bool:
    # A move that is spelled as a multiplication by nothing is one all the same.
    return one.name.startswith(_HALF_RATE)
