"""How far apart in memory neighbouring threads of a warp access: from the arithmetic that makes each address.

A value that depends on the thread's number as `a * thread + b` has the stride `a`; what an address adds up of shifts,
products and sums keeps that form. A product of the thread's number with a value that is only known when the kernel runs has
a stride that nobody knows before; what is no such sum (`thread % 8`, loaded data) says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

import numpy as np

from lanewise.machine_code.disassembly import Function, Instruction

__all__ = ["RUN_TIME", "Stride", "strides_of"]


class _Unknown(Enum):
    RUN_TIME = "a product with a value known at run time"
    OTHER = "no sum"


RUN_TIME = _Unknown.RUN_TIME
"""The stride of an address that multiplies the thread's number with a value known only at run time."""

_OTHER = _Unknown.OTHER

Stride = int | _Unknown
"""Bytes between neighbouring threads, or why that is not known."""

_REGISTER = re.compile(r"^[-|~]?(U?R\d+)(?:\.reuse|\.64|\.U32|\.H\d_H\d|\|)*$")
_NUMBER = re.compile(r"^-?0x[0-9a-f]+$|^-?\d+$")
_FRACTION = re.compile(r"^-?\d+(?:\.\d+)?(?:e[-+]?\d+)?$")
_PREDICATE = re.compile(r"^!?U?P[T0-9]")
_ADDRESS = re.compile(r"\[(R\d+)(?:\.64|\.U32)?")
_AND, _OR, _XOR, _AND_OR = 0xC0, 0xFC, 0x3C, 0xF8
_WARP = 32
_ACCESSES = frozenset({"LDG", "STG", "LD", "ST", "LDGSTS", "RED", "ATOMG"})
_DATA = frozenset({"LDG", "LD", "ATOMG", "LDS", "LDL", "SHFL", "MUFU"})
_THREAD = ("SR_TID.X", "SR_LANEID")


class _Registers:
    """What is known of registers while going through the code: strides, constants, and which hold a launch's argument."""

    def __init__(self) -> None:
        self.stride: dict[str, Stride] = {}
        self.constant: dict[str, int] = {}
        self.argument: set[str] = set()

    def of(self, text: str) -> Stride:
        """Stride of an operand."""
        match = _REGISTER.match(text)
        stride = self.stride.get(match[1], 0) if match else 0
        return -stride if text.startswith("-") and isinstance(stride, int) else stride

    def number(self, text: str) -> int | None:
        """Value of an operand that is a constant."""
        if text.lstrip("-").startswith(("RZ", "URZ")):
            return 0
        if _NUMBER.match(text):
            return int(text, 0)
        match = _REGISTER.match(text)
        return self.constant.get(match[1]) if match else None

    def is_argument(self, text: str) -> bool:
        """Whether an operand is something that the kernel was launched with."""
        match = _REGISTER.match(text)
        return text.startswith("c[") or (match is not None and match[1] in self.argument)

    def write(self, one: Instruction, name: str, stride: Stride) -> None:
        """What an instruction leaves in a register."""
        if one.guard and self.stride.get(name, stride) != stride:
            stride = _OTHER
        self.stride[name] = stride
        self.constant.pop(name, None)
        self.argument.discard(name)
        if one.guard:
            return
        constant = _constant_of(one, self)
        if constant is not None:
            self.constant[name] = constant
        elif one.name in _MOVES and one.operands[-1:] and self.is_argument(one.operands[-1]):
            self.argument.add(name)


_MOVES = frozenset({"LDC", "ULDC", "MOV", "UMOV", "IMAD", "LDCU"})


def _constant_of(one: Instruction, known: _Registers) -> int | None:
    """The number that an instruction only sets, if it does."""
    texts = one.operands[1:]
    if one.name in ("MOV", "UMOV") and texts:
        return known.number(texts[0])
    if one.name == "IMAD" and "MOV" in one.modifiers and len(texts) == 3:
        return known.number(texts[2])
    if one.name == "HFMA2" and len(texts) == 4 and known.number(texts[0]) == known.number(texts[1]) == 0:
        # Compilers set constants with this unit, too, as two halves.
        if all(map(_FRACTION.match, texts[2:])):
            high, low = (int(np.float16(text).view(np.uint16)) for text in texts[2:])
            return high << 16 | low
    return None


def strides_of(code: Function) -> dict[int, Stride]:
    """By index of each access to global memory, the stride of its address; those of no sum are left out."""
    known = _Registers()
    found: dict[int, Stride] = {}
    for at, one in enumerate(code.instructions):
        if one.name in _ACCESSES:
            stride = _of_access(one, known)
            if stride is not _OTHER:
                found[at] = stride
        match = _REGISTER.match(one.operands[0]) if one.operands else None
        if match is None or one.name in _ACCESSES - _DATA:
            continue
        known.write(one, match[1], _value(one, known))
        if "WIDE" in one.modifiers:
            known.stride[f"R{int(match[1].lstrip('UR')) + 1}"] = 0
    return found


def _of_access(one: Instruction, known: _Registers) -> Stride:
    # Of a copy to shared memory the first address is that of shared memory.
    match = list(_ADDRESS.finditer(" ".join(one.operands)))
    return known.of(match[-1][1]) if match else _OTHER


def _value(one: Instruction, known: _Registers) -> Stride:
    """Stride of what an instruction makes."""
    operands = [text for text in one.operands[1:] if not _PREDICATE.match(text)]

    def of(at: int) -> Stride:
        return known.of(operands[at]) if at < len(operands) else 0

    def literal(at: int) -> int | None:
        return known.number(operands[at]) if at < len(operands) else None

    def argument(at: int) -> bool:
        return at < len(operands) and known.is_argument(operands[at])

    if one.name in ("S2R", "CS2R", "S2UR"):
        return int(any(name in " ".join(operands) for name in _THREAD))
    if one.name in _DATA:
        return _OTHER
    upper = {"HI", "X"} & one.modifiers
    rule = _RULES.get(one.name)
    if rule is not None and (not upper or (one.name == "SHF" and upper == {"HI"})):
        return rule(one, of, literal, argument)
    # The upper half of an address does not change from thread to thread; nor does what is made of nothing that does.
    return 0 if upper or all(of(at) == 0 for at in range(len(operands))) else _OTHER


_Of = Callable[[int], Stride]
_Literal = Callable[[int], "int | None"]
_Argument = Callable[[int], bool]


def _sum(*parts: Stride) -> Stride:
    if _OTHER in parts:
        return _OTHER
    if RUN_TIME in parts:
        return RUN_TIME
    return sum(part for part in parts if isinstance(part, int))


def _product(stride: Stride, factor: int | None, *, argument: bool = False) -> Stride:
    if stride == 0 or factor == 0:
        return 0
    if not isinstance(stride, int):
        return stride
    if factor is None:
        return RUN_TIME if argument else _OTHER
    return stride * factor


def _multiply_add(one: Instruction, of: _Of, literal: _Literal, argument: _Argument) -> Stride:
    if "MOV" in one.modifiers:
        return of(2)
    if "IADD" in one.modifiers:
        return _sum(_product(of(0), literal(1) if literal(1) is not None else 1), of(2))
    first, second = of(0), of(1)
    if first != 0 and second != 0:
        return _OTHER
    made = (
        _product(first, literal(1), argument=argument(1))
        if first != 0
        else _product(second, literal(0), argument=argument(0))
    )
    return _sum(made, of(2))


def _add(one: Instruction, of: _Of, literal: _Literal, argument: _Argument) -> Stride:
    return _sum(of(0), of(1), of(2))


def _scaled_add(one: Instruction, of: _Of, literal: _Literal, argument: _Argument) -> Stride:
    return _sum(_product(of(0), 1 << min(63, literal(2) or 0)), of(1))


def _shift(one: Instruction, of: _Of, literal: _Literal, argument: _Argument) -> Stride:
    amount = literal(1)
    if "L" in one.modifiers:
        return _product(of(0), None if amount is None else 1 << min(63, amount))
    stride = of(2)
    if not isinstance(stride, int) or stride == 0:
        return stride
    if amount is None:
        return _OTHER
    unit = 1 << min(63, amount)
    if stride % unit == 0:
        return stride // unit
    return 0 if stride * _WARP <= unit else _OTHER


def _logic(one: Instruction, of: _Of, literal: _Literal, argument: _Argument) -> Stride:
    table = literal(3)
    first, second = of(0), of(1)
    if table in (_AND, _AND_OR) and second == 0:
        kept, more = _masked(first, literal(1)), of(2)
        # Bits that do not overlap are added.
        return _sum(kept, more) if table == _AND or 0 in (kept, more) else _OTHER
    if table in (_OR, _XOR) and of(2) == 0:
        return _sum(first, second) if 0 in (first, second) else _OTHER
    return 0 if first == second == of(2) == 0 else _OTHER


def _masked(stride: Stride, mask: int | None) -> Stride:
    """Of a value, what a mask leaves of it."""
    if stride == 0 or not isinstance(stride, int) or stride < 0 or mask is None:
        return stride if stride == 0 else _OTHER
    bits = stride * (_WARP - 1)
    if mask & bits == bits:
        return stride
    return 0 if mask & bits == 0 else _OTHER


_RULES: dict[str, Callable[[Instruction, _Of, _Literal, _Argument], Stride]] = {
    "MOV": lambda one, of, literal, argument: of(0),
    "IMAD": _multiply_add,
    "IADD3": _add,
    "IADD": _add,
    "VIADD": _add,
    "LEA": _scaled_add,
    "SHF": _shift,
    "LOP3": _logic,
    "SGXT": lambda one, of, literal, argument: of(0),
}
