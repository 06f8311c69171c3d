"""What a kernel's instructions do: where they move data and how wide, which units compute, what they wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lanewise.machine_code.disassembly import Function, Instruction, Place
from lanewise.machine_code.lane_strides import Stride, strides_of
from lanewise.machine_code.loop_nest import Loop, loops_of

__all__ = ["Features", "features_of"]

_GLOBAL_LOADS, _GLOBAL_STORES = frozenset({"LDG", "LD"}), frozenset({"STG", "ST"})
_READS = _GLOBAL_LOADS | {"LDGSTS"}
_ASYNC = frozenset({"LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED"})
_SHARED = frozenset({"LDS", "STS", "LDSM", "STSM"})
_SPILLS = frozenset({"LDL", "STL"})
_ATOMICS = frozenset({"ATOM", "ATOMG", "RED", "REDG", "ATOMS"})
_FLOAT = frozenset({"FFMA", "FMUL", "FADD", "FFMA2", "HFMA2", "HADD2", "HMUL2"})
_MULTIPLY_ADD = frozenset({"FFMA", "FFMA2", "HFMA2"})
_DOUBLE = frozenset({"DFMA", "DADD", "DMUL"})
_SPECIAL = frozenset({"MUFU"})
_CONVERSIONS = frozenset({"I2F", "F2I", "I2FP"})


@dataclass(frozen=True, slots=True)
class Features:
    """Counts over one stretch of code: the hottest loop, or all of it where there is none.

    Attributes:
        loop: the stretch; None for the whole function. loops: all loops.
        count: instructions by opcode, without modifiers. size: how many there are.
        loads, stores: global accesses of one thread by their bits. staged: copies from global to shared memory that no
            register passes, by their bits.
        tensor: opcodes of the tensor cores, with modifiers, by number.
        chained: whether a load's address comes from what the stretch itself has loaded, and where that is.
        strided: global loads by how far apart neighbouring threads of a warp are, bytes (`RUN_TIME` where a value known
            only at run time decides), and the bytes that each thread takes. What is no such sum is in none.
        lines: source lines by instructions, the most first.
    """

    loop: Loop | None
    loops: tuple[Loop, ...]
    count: Counter[str]
    size: int
    loads: Counter[int]
    stores: Counter[int]
    staged: Counter[int]
    tensor: Counter[str]
    chained: Place | None
    is_chained: bool
    strided: Counter[tuple[Stride, int]]
    lines: tuple[tuple[Place, int], ...]

    def share(self, names: frozenset[str]) -> float:
        """Share of the stretch's instructions with one of these opcodes."""
        return self.number(names) / self.size if self.size else 0.0

    def number(self, names: frozenset[str]) -> int:
        """How many instructions have one of these opcodes."""
        return sum(self.count[name] for name in names)

    @property
    def spills(self) -> int:
        """Accesses to local memory."""
        return self.number(_SPILLS)

    @property
    def shared(self) -> int:
        """Accesses to shared memory through registers."""
        return self.number(_SHARED)

    @property
    def atomics(self) -> int:
        """Atomic operations on global and shared memory."""
        return self.number(_ATOMICS)

    @property
    def double(self) -> int:
        """Operations in double precision."""
        return self.number(_DOUBLE)

    @property
    def float(self) -> int:
        """Operations in single and half precision outside of tensor cores."""
        return self.number(_FLOAT)

    @property
    def multiplied(self) -> int:
        """Multiply-adds among them."""
        return self.number(_MULTIPLY_ADD)

    @property
    def special(self) -> int:
        """Operations of the special function unit: roots, exponentials, reciprocals."""
        return self.number(_SPECIAL)

    @property
    def conversions(self) -> int:
        """Conversions between whole and floating-point numbers: what a division of whole numbers is made of."""
        return self.number(_CONVERSIONS)


def features_of(code: Function, part: Loop | None = None, *, whole: bool = False) -> Features:
    """Features of a stretch: by default of the loop in which most is done, `whole`: of the function."""
    loops = loops_of(code)
    loop = part if part is not None else None if whole else _hottest(code, loops)
    body = code.instructions[loop.first : loop.last + 1] if loop is not None else code.instructions
    body = [one for one in body if one.name != "NOP"]
    begin, last = (loop.first, loop.last) if loop is not None else (0, len(code.instructions))
    places = Counter(one.place for one in body if one.place is not None)
    tensor: Counter[str] = Counter(".".join(one.opcode.split(".")[:3]) for one in body if _is_tensor(one.name))
    chained = _chained(body, again=loop is not None)
    return Features(
        loop=loop,
        loops=tuple(loops),
        count=Counter("MOV" if _sets_constant(one) else one.name for one in body),
        size=len(body),
        loads=Counter(one.width for one in body if one.name in _GLOBAL_LOADS),
        stores=Counter(one.width for one in body if one.name in _GLOBAL_STORES),
        staged=Counter(one.width for one in body if one.name in _ASYNC),
        tensor=tensor,
        chained=chained.place if chained is not None else None,
        is_chained=chained is not None,
        strided=Counter(
            (stride, code.instructions[at].width // 8)
            for at, stride in strides_of(code).items()
            if begin <= at <= last and code.instructions[at].name in _READS
        ),
        lines=tuple(places.most_common(8)),
    )


def _sets_constant(one: Instruction) -> bool:
    """Compilers set constants with the unit for halves, too: nothing times nothing, plus the constant."""
    return one.name == "HFMA2" and [text.lstrip("-")[:2] for text in one.operands[1:3]] == ["RZ", "RZ"]


def _is_tensor(name: str) -> bool:
    """HMMA, IMMA, DMMA, QMMA of one warp; HGMMA and the like of four; UTCHMMA and the like of the fifth generation."""
    return name.endswith("MMA") and name not in ("UMMA",)


def _hottest(code: Function, loops: list[Loop]) -> Loop | None:
    """The loop whose instructions run most often, as far as that can be told: of the innermost ones that move data or
    compute, the one with most of that."""

    def work(loop: Loop) -> int:
        body = code.instructions[loop.first : loop.last + 1]
        # An instruction of the tensor cores does the work of hundreds of others.
        return sum(64 if _is_tensor(one.name) else one.name in _WORK for one in body)

    inner = [loop for loop in loops if not any(other is not loop and other.first in loop for other in loops)]
    doing = [loop for loop in inner if work(loop)]
    return max(doing, key=lambda loop: (loop.depth, work(loop), -loop.first), default=None)


_WORK = _GLOBAL_LOADS | _GLOBAL_STORES | _ASYNC | _SHARED | _SPILLS | _ATOMICS | _FLOAT | _DOUBLE | _SPECIAL


def _chained(body: list[Instruction], *, again: bool) -> Instruction | None:
    """The first global load whose address comes from another load of the stretch; in a loop also of the round before."""
    loaded: set[int] = set()
    for _ in range(2 if again else 1):
        for one in body:
            if one.name in _GLOBAL_LOADS and _address(one) & loaded:
                return one
            written = one.writes()
            if one.name in _GLOBAL_LOADS or (one.reads() & loaded and _is_address_work(one.name)):
                loaded |= written
            else:
                loaded -= written
    return None


def _address(load: Instruction) -> frozenset[int]:
    return Instruction(0, "", "MOV", ("R255", *load.operands[1:])).reads()


# What addresses are computed with. Data that is multiplied and added in floating point addresses nothing.
_INTEGER = ("IMAD", "IADD", "LEA", "SHF", "LOP", "MOV", "SEL", "SHL", "UMOV", "PRMT", "VIADD")


def _is_address_work(name: str) -> bool:
    return name.startswith(_INTEGER)
