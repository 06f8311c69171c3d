"""Registers and predicates of one warp, which its instructions change one after the other.

The code is gone through once, from its begin to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from lanewise.machine_code.disassembly import Instruction
from lanewise.machine_code.lanes import (
    OTHER,
    UNIFORM,
    WARP,
    ZERO,
    Lanes,
    Value,
    bits_of,
    chosen_of,
    number_of,
    product_of,
    right_of,
    sum_of,
)
from lanewise.machine_code.loop_nest import Loop

__all__ = ["Warp"]

_REGISTER = re.compile(r"^[-|~]?(U?R\d+)(?:\.reuse|\.64|\.U32|\.H\d_H\d|\|)*$")
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]{1,8}|0|[1-9]\d{0,8})$")
_FRACTION = re.compile(r"^-?\d+(?:\.\d+)?(?:e[-+]?\d+)?$")
_PREDICATE = re.compile(r"^!?U?P(?:T|\d+)$")
# What no arithmetic on the thread's number makes.
_DATA = frozenset({"LDG", "LD", "ATOM", "ATOMG", "ATOMS", "LDS", "LDL", "LDSM", "SHFL", "MUFU", "VOTE", "MATCH"})
_COMPARISONS = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


class Warp:
    """Registers and predicates of a warp, which one instruction after the other changes.

    Args:
        block: threads of a block in x, y and z; 0 where that is not known, which is taken for at least a warp in x.
        in_rows: whether the code asks for the second coordinate of a thread.
    """

    def __init__(self, block: tuple[int, int, int], *, in_rows: bool) -> None:
        x, y, z = block
        if in_rows and y * z <= 1:
            # The most threads that a block may have are given as one row.
            x, y = 0, 0
        # The second warp stands for all: what only thread 0 does is not what a warp does.
        self._first = 0 if 0 < x * y * z < 2 * WARP else WARP
        self._x = x or (WARP if in_rows else 1 << 20)
        self._y = y or (1 << 20)
        self._values: dict[str, Value] = {}
        self._predicates: dict[str, np.ndarray | None] = {}
        self._under: dict[str, tuple[str, Value]] = {}
        """What a guarded instruction left in a register, by the guard: so it is where the guard still holds."""

    def under(self, text: str, guard: str) -> Value:
        """What an operand is in an instruction with this guard."""
        match = _REGISTER.match(text)
        left = self._under.get(match[1]) if match and guard else None
        return left[1] if left is not None and left[0] == guard else self.of(text)

    def of(self, text: str) -> Value:
        """What an operand is."""
        if text.lstrip("-|~").startswith(("RZ", "URZ")):
            return ZERO
        if _NUMBER.match(text):
            return number_of(int(text, 0))
        match = _REGISTER.match(text)
        value = self._values.get(match[1], UNIFORM) if match else UNIFORM
        if not text.startswith("-") or not isinstance(value, Lanes):
            return value if not text.startswith(("~", "|")) or value is UNIFORM else OTHER
        return Lanes(-value.numbers, value.unit, value.far)

    def where(self, guard: str) -> np.ndarray | None:
        """Threads in which a guard such as `!P0` holds; None if unknown."""
        name = guard.lstrip("!")
        held = np.ones(WARP, dtype=bool) if name in ("", "PT", "UPT") else self._predicates.get(name)
        return ~held if held is not None and guard.startswith("!") else held

    def enter(self, loop: Loop, code: list[Instruction]) -> None:
        """What is changed in a loop is not what it was before, from its second round on."""
        for one in code[loop.first : loop.last + 1]:
            for name in _results(one):
                self._under.pop(name, None)
                value = self._values.get(name)
                if isinstance(value, Lanes) and value.unit == 0:
                    self._values[name] = Lanes(value.numbers, 1, value.far)
            for name in _predicates_set(one):
                self._predicates[name] = None

    def step(self, one: Instruction) -> None:
        """What an instruction leaves in registers and predicates."""
        where = self.where(one.guard)
        names, predicates = _results(one), _predicates_set(one)
        value = self._made(one) if names or predicates else OTHER
        holds = self._compared(one, value) if predicates and not one.guard else None
        for number, name in enumerate(names):
            # The second half of an address is the same for all threads.
            made = value if number == 0 else UNIFORM if one.name not in _DATA else OTHER
            self._values[name] = chosen_of(where, made, self._values.get(name, made))
            self._under.pop(name, None)
            if one.guard:
                self._under[name] = (one.guard, made)
        for number, name in enumerate(predicates):
            self._predicates[name] = holds if number == 0 else None
            self._under = {of: left for of, left in self._under.items() if left[0].lstrip("!") != name}

    def _compared(self, one: Instruction, value: Value) -> np.ndarray | None:
        """Where the first predicate that an instruction sets holds."""
        if one.name == "LOP3" and isinstance(value, Lanes) and value.unit == 0:
            return value.numbers != 0
        if one.name not in ("ISETP", "UISETP") or len(one.operands) != 5 or "EX" in one.modifiers:
            return None
        how = next((_COMPARISONS[name] for name in one.opcode.split(".") if name in _COMPARISONS), None)
        a, b = (self.of(text) for text in one.operands[2:4])
        if how is None or not isinstance(a, Lanes) or not isinstance(b, Lanes) or a.unit or b.unit:
            return None
        numbers = [side.numbers & 0xFFFFFFFF if "U32" in one.modifiers else side.numbers for side in (a, b)]
        also = self.where(one.operands[4])
        if also is None or not also.all() or "AND" not in one.modifiers:
            return None
        return how(*numbers)

    def _made(self, one: Instruction) -> Value:
        """What an instruction makes."""
        if one.name in ("S2R", "S2UR", "CS2R"):
            return self._special(" ".join(one.operands[1:]))
        if one.name in _DATA:
            return OTHER
        first = 1 if not _PREDICATE.match(one.operands[0]) else 2
        operands = [text for text in one.operands[first:] if not _PREDICATE.match(text)]
        values = [self.of(text) for text in operands]
        rule = _RULES.get(one.name.removeprefix("U"))
        if rule is not None:
            return UNIFORM if "X" in one.modifiers else rule(_Operands(one, operands, values))
        if one.name in ("SEL", "USEL") and len(values) == 2:
            return chosen_of(self.where(one.operands[-1]), values[0], values[1])
        # What is made of nothing that differs from thread to thread does not either.
        return UNIFORM if all(isinstance(value, Lanes) and value.same for value in values) else OTHER

    def _special(self, text: str) -> Value:
        threads = self._first + np.arange(WARP)
        if "SR_LANEID" in text:
            return Lanes(np.arange(WARP))
        if "SR_TID.X" in text:
            return Lanes(threads % self._x)
        if "SR_TID.Y" in text:
            return Lanes(threads // self._x % self._y)
        return UNIFORM


def _results(one: Instruction) -> list[str]:
    """Names of the registers that an instruction changes."""
    uniform = one.operands[0] if one.operands else ""
    if match := re.match(r"^UR(\d+)", uniform):
        wide = 2 if {"64", "WIDE"} & one.modifiers else 1
        return [f"UR{int(match[1]) + number}" for number in range(wide)]
    return [f"R{number}" for number in sorted(one.writes())]


def _predicates_set(one: Instruction) -> list[str]:
    """Names of the predicates that an instruction changes, in order."""
    found: list[str] = []
    for text in one.operands[: 2 if one.name.endswith(("SETP", "SETP2")) or "PLOP3" in one.name else 1]:
        if re.match(r"^U?P\d+$", text):
            found.append(text)
    return found


class _Operands:
    """What an instruction computes with."""

    def __init__(self, one: Instruction, texts: list[str], values: list[Value]) -> None:
        self.has, self.texts, self.values = one.modifiers, texts, values

    def of(self, at: int) -> Value:
        """One of them; nothing where there are fewer."""
        return self.values[at] if 0 <= at < len(self.values) else ZERO

    def constant(self, at: int) -> int | None:
        """One of them, where it is a known number."""
        value = self.of(at)
        return value.constant if isinstance(value, Lanes) else None

    def amount(self, at: int) -> int | None:
        """Bits by which something is shifted."""
        bits = self.constant(at)
        return None if bits is None else min(62, max(0, bits))

    def power(self, at: int) -> Value:
        """What a shift to the left by one of them multiplies with."""
        bits = self.amount(at)
        return OTHER if bits is None else Lanes(np.full(WARP, 1 << bits))

    @property
    def unknown(self) -> Value:
        """What is made of nothing that differs from thread to thread does not either."""
        return UNIFORM if all(isinstance(value, Lanes) and value.same for value in self.values) else OTHER


def _multiply_add(these: _Operands) -> Value:
    if "HI" in these.has:
        return these.unknown
    if "MOV" in these.has:
        return these.of(2)
    return sum_of(product_of(these.of(0), these.of(1)), these.of(2))


def _scaled_add(these: _Operands) -> Value:
    if "HI" in these.has:
        return these.unknown
    return sum_of(product_of(these.of(0), these.power(len(these.values) - 1)), these.of(1))


def _shift(these: _Operands) -> Value:
    if "L" in these.has:
        return product_of(these.of(0), these.power(1))
    value = these.of(2)
    if "U32" in these.has and isinstance(value, Lanes) and value.unit == 0:
        value = Lanes(value.numbers & 0xFFFFFFFF)
    return right_of(value, these.amount(1))


def _halves(these: _Operands) -> Value:
    """Compilers set constants with the unit for halves, too: nothing times nothing, plus two of them."""
    numbers = these.texts[2:]
    if these.constant(0) == these.constant(1) == 0 and len(numbers) == 2 and all(map(_FRACTION.match, numbers)):
        high, low = (int(np.float16(text).view(np.uint16)) for text in numbers)
        return number_of(high << 16 | low)
    return these.unknown


_RULES: dict[str, Callable[[_Operands], Value]] = {
    "MOV": lambda these: these.of(0),
    "SGXT": lambda these: these.of(0),
    "IMAD": _multiply_add,
    "IADD3": lambda these: sum_of(*these.values),
    "IADD": lambda these: sum_of(*these.values),
    "VIADD": lambda these: sum_of(*these.values),
    "LEA": _scaled_add,
    "SHF": _shift,
    "LOP3": lambda these: bits_of(these.values[:3], these.constant(3)),
    "HFMA2": _halves,
}
