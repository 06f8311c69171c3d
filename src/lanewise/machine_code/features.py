"""What a kernel's instructions do: where they move data and how wide, which units compute, what they wait for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.machine_code.accesses import (
    GLOBAL_LOADS,
    GLOBAL_STORES,
    SHARED_ACCESSES,
    Access,
    accesses_of,
    loaded_by_others,
)
from lanewise.machine_code.disassembly import Function, Instruction, Place, registers_of
from lanewise.machine_code.loop_nest import Loop, loops_of

__all__ = [
    "ATOMICS",
    "CONVERSIONS",
    "DOUBLE",
    "MULTIPLY_ADDS",
    "READS",
    "SHARED",
    "SHARED_LOADS",
    "SPECIAL",
    "SPILLS",
    "WRITES",
    "Features",
    "features_of",
]

# Opcodes, without modifiers.
_ASYNC = frozenset({"LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED"})
READS, WRITES = GLOBAL_LOADS, GLOBAL_STORES
"""Of global memory."""
_TO_REGISTERS = READS - {"LDGSTS"}
SHARED_LOADS = frozenset({"LDS"})
SHARED = SHARED_LOADS | {"STS", "LDSM", "STSM"}
"""Accesses to shared memory through registers."""
SPILLS = frozenset({"LDL", "STL"})
"""Accesses to local memory."""
ATOMICS = frozenset({"ATOM", "ATOMG", "RED", "REDG", "ATOMS"})
"""On global and shared memory."""
MULTIPLY_ADDS = frozenset({"FFMA", "FFMA2", "HFMA2"})
"""In single and half precision, outside of tensor cores."""
DOUBLE = frozenset({"DFMA", "DADD", "DMUL"})
SPECIAL = frozenset({"MUFU"})
"""Of the special function unit: roots, exponentials, reciprocals."""
CONVERSIONS = frozenset({"I2F"})
"""Of whole numbers to floating-point ones, as they come or for a division: see `Features.reciprocals`."""
_UPWARDS = "RP"
_COMPUTING = MULTIPLY_ADDS | DOUBLE | SPECIAL | {"FMUL", "FADD", "HADD2", "HMUL2"}


@dataclass(frozen=True, slots=True)
class Features:
    """Counts over one stretch of code: the hottest loop, or all of it where there is none.

    Attributes:
        loop: the stretch; None for the whole function. loops: all loops.
        body: its instructions, without padding.
        count: how many there are by opcode, without modifiers.
        loads, stores: global accesses of one thread by their bits. staged: copies from global to shared memory that no
            register passes, by their bits.
        tensor: opcodes of the tensor cores, with modifiers, by number.
        chained: the first load whose address comes from what the stretch itself has loaded; None if there is none.
        reads, writes, shared: how a warp's accesses to global memory and to shared memory lie; those of which nothing is
            known are in none.
        fresh: share of the loaded bytes that no other block loads as well.
        active: share of a warp's threads that run the stretch, as far as their number decides it. parting: where in the
            source they part.
    """

    loop: Loop | None
    loops: tuple[Loop, ...]
    body: tuple[Instruction, ...]
    count: Counter[str]
    loads: Counter[int]
    stores: Counter[int]
    staged: Counter[int]
    tensor: Counter[str]
    chained: Instruction | None
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    shared: tuple[Access, ...]
    active: float
    fresh: float
    parting: Place | None
    quotients: int = 0
    conflicting: tuple[tuple[Instruction, Access], ...] = ()
    long_divisions: int = 0
    reductions: int = 0
    waits_for_copies: Instruction | None = None

    @property
    def size(self) -> int:
        """How many instructions there are."""
        return len(self.body)

    @property
    def multiplied(self) -> int:
        """Multiply-adds of data with data: not those of a polynomial, whose factors are constants, nor of a recurrence,
        whose factors are what was multiplied before."""
        found, made = 0, set[int]()
        for again in (False, True):
            for one in self.body:
                multiplies = one.name in MULTIPLY_ADDS
                data = multiplies and all(map(_is_data, one.operands[1:]))
                found += again and data and not made & registers_of(one.operands[1:3])
                made = made | one.writes() if multiplies else made - one.writes()
        return found

    @property
    def reciprocals(self) -> int:
        """Divisions of whole numbers begin with the reciprocal of a divisor that the compiler does not know: of the divisor
        rounded upwards, as no other conversion is. Where it stays the same, that is outside of the loop."""
        return sum(_is_reciprocal(one) for one in self.body)

    @property
    def dividing(self) -> Place | None:
        """Where in the source most of the dividing is."""
        begins = (_is_reciprocal, _is_quotient, _divides_by_call)
        places = Counter(one.place for one in self.body if any(is_one(one) for is_one in begins))
        return max((place for place in places if place is not None), key=lambda place: places[place], default=None)

    @property
    def lines(self) -> list[tuple[Place, int]]:
        """Source lines by instructions, the most first."""
        return Counter(one.place for one in self.body if one.place is not None).most_common(_LINES)

    def place_of(self, names: frozenset[str]) -> Place | None:
        """Where in the source most of the instructions with one of these opcodes are from."""
        places = Counter(one.place for one in self.body if one.name in names and one.place is not None)
        return max(places, key=lambda place: places[place], default=None)

    def number(self, names: frozenset[str]) -> int:
        """How many instructions have one of these opcodes."""
        return sum(self.count[name] for name in names)


def _is_data(operand: str) -> bool:
    """Whether it is a register of a thread, and not the one that is always zero."""
    name = operand.lstrip("-|~")
    return name.startswith("R") and not name.startswith("RZ")


_LINES = 8


def features_of(code: Function, block: tuple[int, int, int] = (0, 0, 0)) -> Features:
    """Features of the loop in which most is done; of all of the function where there is none. `block`: its threads in x, y
    and z, 0 if unknown."""
    loops = loops_of(code)
    loop = _hottest(code, loops)
    begin, last = (loop.first, loop.last) if loop is not None else (0, len(code.instructions) - 1)
    inside = [at for at in range(begin, last + 1) if code.instructions[at].name != "NOP"]
    body = tuple(code.instructions[at] for at in inside)
    found = accesses_of(code, block)

    def known(names: frozenset[str]) -> tuple[Access, ...]:
        return tuple(
            found.by_index[at] for at in inside if at in found.by_index and code.instructions[at].name in names
        )

    return Features(
        loop=loop,
        loops=tuple(loops),
        body=body,
        count=Counter("MOV" if _sets_constant(one) else one.name for one in body),
        loads=Counter(one.width for one in body if one.name in _TO_REGISTERS),
        stores=Counter(one.width for one in body if one.name in WRITES),
        staged=Counter(one.width for one in body if one.name in _ASYNC),
        tensor=Counter(".".join(one.opcode.split(".")[:3]) for one in body if _is_tensor(one.name)),
        chained=_chained(body, again=loop is not None),
        reads=known(READS),
        writes=known(WRITES),
        shared=known(SHARED_ACCESSES),
        active=float(np.mean([found.active[at] for at in inside])) if inside else 1.0,
        fresh=_fresh(code, inside),
        parting=code.instructions[found.parting[0]].place if found.parting else None,
        quotients=sum(map(_is_quotient, body)) if any(map(_is_reciprocal, code.instructions)) else 0,
        conflicting=_conflicting(code, loops, loop, found.by_index),
        long_divisions=sum(map(_divides_by_call, body)),
        reductions=sum(map(_reduces_angle, body)),
        waits_for_copies=_waits_for_copies(body) if loop is not None else None,
    )


def _conflicting(
    code: Function, loops: list[Loop], hottest: Loop | None, accesses: dict[int, Access]
) -> tuple[tuple[Instruction, Access], ...]:
    if hottest is None:
        return ()
    rounds = [_ROUNDS ** sum(at in loop for loop in loops) for at in range(len(code.instructions))]
    outside = {
        at: access
        for at, access in accesses.items()
        if at not in hottest and code.instructions[at].name in SHARED_ACCESSES
    }
    vain = sum(rounds[at] * (access.pieces - access.least) for at, access in outside.items())
    if vain < _MUCH * sum(rounds):
        return ()
    return tuple((code.instructions[at], access) for at, access in outside.items() if access.pieces > access.least)


_MUCH = 0.5


def _is_reciprocal(one: Instruction) -> bool:
    return one.name in CONVERSIONS and _UPWARDS in one.modifiers


def _is_quotient(one: Instruction) -> bool:
    """The upper half of a number times a reciprocal. A divisor that the compiler knows is an immediate; one that was
    prepared on the host comes from the launch's arguments."""
    multiplies = one.name == "IMAD" and "HI" in one.modifiers and len(one.operands) == 4
    return multiplies and one.operands[3] == "RZ" and all(map(_IN_REGISTER.match, one.operands[1:3]))


def _divides_by_call(one: Instruction) -> bool:
    return one.name == "CALL" and any(map(_DIVIDES.search, one.operands))


_DIVIDES = re.compile(r"__cuda_sm\d+_(?:div|rem)_[su]64")
_IN_REGISTER = re.compile(r"^U?R\d")


def _reduces_angle(one: Instruction) -> bool:
    """The end of reducing a large angle: what is left of it, in 64 bits, becomes a floating-point number."""
    return one.name in CONVERSIONS and {"F64", "S64"} <= one.modifiers


def _waits_for_copies(body: Sequence[Instruction]) -> Instruction | None:
    """The first store of what was just loaded to shared memory, if at least half of such stores are of what was not on its
    way while the tile before was multiplied."""
    loading: set[int] = set()
    waiting: list[Instruction] = []
    for one in body:
        if _is_tensor(one.name):
            loading.clear()
        elif one.name in _ASYNC:
            return None
        elif one.name in _TO_REGISTERS:
            loading |= one.writes()
        elif one.name == "STS" and one.reads() & loading:
            waiting.append(one)
    return waiting[0] if waiting and 2 * len(waiting) >= sum(one.name == "STS" for one in body) else None


def _fresh(code: Function, inside: Sequence[int]) -> float:
    """Share of the bytes that a stretch loads, and no other block does."""
    others = loaded_by_others(code)
    widths = {at: code.instructions[at].width for at in inside if code.instructions[at].name in READS}
    every = sum(widths.values())
    return sum(width for at, width in widths.items() if at not in others) / every if every else 1.0


def _sets_constant(one: Instruction) -> bool:
    """Compilers set constants with the unit for halves, too: nothing times nothing, plus the constant."""
    return one.name == "HFMA2" and [text.lstrip("-")[:2] for text in one.operands[1:3]] == ["RZ", "RZ"]


def _is_tensor(name: str) -> bool:
    """HMMA, IMMA, DMMA, QMMA of one warp; HGMMA and the like of four; UTCHMMA and the like of the fifth generation."""
    return name.endswith("MMA")


def _hottest(code: Function, loops: list[Loop]) -> Loop | None:
    """The loop whose instructions run most often, as far as that can be told: the one that moves and computes most, where
    one in another is taken to go round some times for each round of that."""

    def work(loop: Loop) -> float:
        inner = [other for other in loops if other is not loop and other.first in loop and len(other) < len(loop)]
        own = (at for at in range(loop.first, loop.last + 1) if not any(at in other for other in inner))
        # An instruction of the tensor cores does the work of hundreds of others.
        done = sum(64 if _is_tensor(code.instructions[at].name) else code.instructions[at].name in _WORK for at in own)
        return done * _ROUNDS ** (loop.depth - _is_counted(code, loop))

    return max(
        (loop for loop in loops if work(loop) and not _reduces_large_angle(code, loop)),
        key=lambda loop: (work(loop), -loop.first),
        default=None,
    )


_ROUNDS = 8.0


def _reduces_large_angle(code: Function, loop: Loop) -> bool:
    """Whether a loop multiplies an angle with many digits of 2 / pi, in whole numbers, which only large ones need."""
    body, after = code.instructions[loop.first : loop.last + 1], code.instructions[loop.last + 1 : loop.last + _NEAR]
    names = {one.name for one in body}
    return len(body) < _NEAR and bool(names & READS) and not names & _REAL and any(map(_reduces_angle, after))


# Compilers set constants with the unit for halves, too.
_REAL = _COMPUTING - {"HFMA2"}
_NEAR = 64


def _is_counted(code: Function, loop: Loop) -> bool:
    """Whether a loop ends at a number that the compiler knows, as one that only fills a tile does. What counts down what a
    launch says compares with a small one."""
    guard = code.instructions[loop.last].guard.lstrip("!")
    for one in reversed(code.instructions[loop.first : loop.last]):
        if one.name in ("ISETP", "UISETP") and one.operands[:1] == (guard,):
            return any(_NUMBER.match(text) and abs(int(text, 0)) >= _SMALL for text in one.operands[2:4])
    return False


_NUMBER = re.compile(r"^-?0x[0-9a-f]+$")
_SMALL = 64


_WORK = READS | WRITES | _ASYNC | SHARED | SPILLS | ATOMICS | _COMPUTING


def _chained(body: Sequence[Instruction], *, again: bool) -> Instruction | None:
    """The first global load whose address comes from another load of the stretch; in a loop also of the round before."""
    loaded: set[int] = set()
    for _ in range(2 if again else 1):
        for one in body:
            depends = bool(one.reads() & loaded)
            if one.name in _TO_REGISTERS and depends:
                return one
            if one.name in _TO_REGISTERS or (depends and one.name.startswith(_INTEGER)):
                loaded |= one.writes()
            else:
                loaded -= one.writes()
    return None


# What addresses are computed with. Data that is multiplied and added in floating point addresses nothing.
_INTEGER = ("IMAD", "IADD", "LEA", "SHF", "LOP", "MOV", "SEL", "SHL", "UMOV", "PRMT", "VIADD")
