"""How a warp's accesses to memory lie, and how many of its threads do what: from what its registers hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lanewise.machine_code.disassembly import Function, Instruction
from lanewise.machine_code.lanes import WARP, Lanes
from lanewise.machine_code.loop_nest import loops_of
from lanewise.machine_code.warp import Warp

__all__ = [
    "GLOBAL_LOADS",
    "GLOBAL_STORES",
    "SHARED_ACCESSES",
    "Access",
    "Accesses",
    "accesses_of",
    "loaded_by_others",
    "touched",
]

GLOBAL_LOADS = frozenset({"LDG", "LD", "LDGSTS"})
GLOBAL_STORES = frozenset({"STG", "ST"})
SHARED_ACCESSES = frozenset({"LDS", "STS"})
_ADDRESS = re.compile(r"\[(R\d+)(?:\.64|\.U32|\.X\d+)*(?:\+UR\d+)?(?:\+(-?0x[0-9a-f]+))?")
_SECTOR, _LINE, _BANKS, _WORD = 32, 128, 32, 4
_AWAY = 1 << 40
"""Sectors between threads that lie apart by what only the launch knows: more than any known distance."""


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One instruction's access by the 32 threads of a warp.

    Attributes:
        size: bytes of each thread. apart: bytes between neighbouring threads; None where they differ, or where only the
            launch knows. pieces: of global memory, sectors of 32 bytes that the warp touches; of shared memory, rounds that
            it takes, as each bank gives one word a round. least: how many there would be at best.
        lines: of global memory, lines of 128 bytes that the warp touches. sectors: which sectors, counted from `base`,
            the value that the address was made of.
    """

    size: int
    apart: int | None
    pieces: int
    least: int
    lines: int = 0
    sectors: frozenset[int] = frozenset()
    base: Lanes | None = None


@dataclass(frozen=True, slots=True)
class Accesses:
    """Of a function.

    Attributes:
        by_index: accesses by the index of their instruction; those of which nothing is known are left out.
        active: for each instruction, the share of a warp's threads that run it, as far as their number decides it.
        parting: indices of branches at which threads of one warp part.
    """

    by_index: dict[int, Access]
    active: np.ndarray
    parting: tuple[int, ...]


def accesses_of(code: Function, block: tuple[int, int, int] = (0, 0, 0)) -> Accesses:
    """Accesses of a warp of a block of so many threads in x, y and z (0: unknown)."""
    instructions = code.instructions
    in_rows = any("SR_TID.Y" in text for one in instructions for text in one.operands)
    warp = Warp(block, in_rows=in_rows)
    begins = {loop.first: loop for loop in loops_of(code)}
    found: dict[int, Access] = {}
    active = np.ones(len(instructions))
    parting: list[int] = []
    for at, one in enumerate(instructions):
        if at in begins:
            warp.enter(begins[at], instructions)
        where = warp.where(one.guard)
        share = float(where.mean()) if where is not None else 1.0
        if 0 < share < 1:
            if at in code.targets or one.name == "EXIT":
                _part(code, at, share, active)
                parting.append(at)
            else:
                active[at] *= share
        if (access := _access(one, warp)) is not None:
            found[at] = access
        warp.step(one)
    return Accesses(found, active, tuple(parting))


def _part(code: Function, at: int, taken: float, active: np.ndarray) -> None:
    """Threads part at a branch forward: some go on, the others skip what follows, and do what stands behind it instead."""
    target = code.targets.get(at, len(active))
    if target <= at:
        return
    active[at + 1 : target] *= 1 - taken
    last = code.instructions[target - 1] if target > at + 1 else None
    end = code.targets.get(target - 1, -1)
    if last is not None and not last.guard and end > target:
        active[target:end] *= taken


def loaded_by_others(code: Function) -> frozenset[int]:
    """Indices of the loads that other blocks do as well: those whose address depends on fewer axes of the grid than what
    the kernel writes, as that of a product's factors does. Of a grid of one axis nothing is known."""
    axes: dict[str, frozenset[str]] = {}
    loads: dict[int, frozenset[str]] = {}
    written: frozenset[str] = frozenset()
    # A second time, for what a loop carries along.
    for _ in range(2):
        for at, one in enumerate(code.instructions):
            if one.name in GLOBAL_LOADS:
                loads[at] = _axes_of(one.operands[-1:], axes)
            elif one.name in GLOBAL_STORES | _ADDING:
                written |= _axes_of([text for text in one.operands if "[" in text], axes)
            of = frozenset({"data"}) if one.name in _LOADING else _axes_of(one.operands[1:], axes)
            for name in _changed(one):
                axes[name] = of | (axes.get(name, frozenset()) if one.guard else frozenset())
    return frozenset(at for at, of in loads.items() if of < written)


_ADDING = frozenset({"RED", "REDG", "ATOM", "ATOMG"})
_LOADING = GLOBAL_LOADS | _ADDING | {"LDS", "LDL", "LDSM", "ATOMS"}
_ANY_REGISTER = re.compile(r"U?R\d+")
_AXIS = re.compile(r"SR_CTAID\.([XYZ])")


def _axes_of(operands: Iterable[str], axes: dict[str, frozenset[str]]) -> frozenset[str]:
    """Axes of the grid that operands depend on, and `data` for what was loaded."""
    found: set[str] = set()
    for text in operands:
        found.update(_AXIS.findall(text))
        for name in _ANY_REGISTER.findall(text):
            found |= axes.get(name, frozenset())
            if ".64" in text or "[" in text:
                found |= axes.get(_next(name), frozenset())
    return frozenset(found)


def _changed(one: Instruction) -> list[str]:
    if one.operands and (match := re.match(r"UR\d+", one.operands[0])):
        return [match[0], _next(match[0])] if one.modifiers & {"64", "WIDE"} else [match[0]]
    return [f"R{number}" for number in one.writes()]


def _next(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{kind}{int(name[len(kind) :]) + 1}"


def touched(accesses: Iterable[Access]) -> int:
    """Sectors of global memory that accesses touch, each counted once where several are known to touch it."""
    by_base: dict[int, set[int]] = {}
    for access in accesses:
        by_base.setdefault(id(access.base), set()).update(access.sectors)
    return sum(map(len, by_base.values()))


def _access(one: Instruction, warp: Warp) -> Access | None:
    is_shared = one.name in SHARED_ACCESSES
    if not is_shared and one.name not in GLOBAL_LOADS | GLOBAL_STORES:
        return None
    # Of a copy to shared memory the first address is that of shared memory.
    match = list(_ADDRESS.finditer(" ".join(one.operands)))
    value = warp.under(match[-1][1], one.guard) if match else None
    if not isinstance(value, Lanes):
        return None
    size = one.width // 8
    if is_shared:
        return _shared(value, size) if value.far is None else None
    return _global(value, size, int(match[-1][2] or "0", 0))


def _global(value: Lanes, size: int, offset: int) -> Access:
    begins = value.numbers - value.numbers.min() + offset
    away = 0 * begins if value.far is None else value.far * _AWAY
    sectors = np.unique(np.concatenate([away + begins // _SECTOR, away + (begins + size - 1) // _SECTOR]))
    lines = np.unique(away + begins // _LINE)
    least = 1 if value.same else max(1, WARP * size // _SECTOR)
    apart = _step(begins) if value.far is None else None
    return Access(size, apart, len(sectors), least, len(lines), frozenset(sectors.tolist()), value)


def _shared(value: Lanes, size: int) -> Access:
    # Of 8 bytes a thread, half of a warp is served at a time; of 16, a quarter.
    words = max(1, size // _WORD)
    rounds = 0
    for group in np.split(value.numbers // _WORD, min(words, 4)):
        asked = np.unique(group[:, None] + np.arange(words))
        rounds += int(np.bincount(asked % _BANKS).max())
    return Access(size, _step(value.numbers), rounds, min(words, 4))


def _step(numbers: np.ndarray) -> int | None:
    steps = np.diff(numbers)
    return int(steps[0]) if (steps == steps[0]).all() else None
