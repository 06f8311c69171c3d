"""Reads what `nvdisasm -c -gi` prints: functions, their instructions, and the source line of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Function", "Instruction", "Place", "parse", "registers_of"]

_INSTRUCTION = re.compile(
    r"/\*(?P<address>[0-9a-f]+)\*/\s+(?:@(?P<guard>!?U?P[T0-9]+)\s+)?(?P<opcode>[A-Z][A-Za-z0-9_.]*)\s*(?P<operands>[^;]*);"
)
_PLACE = re.compile(
    r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?: inlined at "(?P<caller>[^"]*)", line (?P<caller_line>\d+))?'
)
_LABEL = re.compile(r"^(\.L\w+):")
_FUNCTION = re.compile(r"^\.text\.(\S+):")
_TARGET = re.compile(r"\.L\w+|0x[0-9a-f]+")
_REGISTER = re.compile(r"\bR(\d+)(?:\.\w+)*")
_ARCH = re.compile(r"EF_CUDA_SM(\d+)|\bsm_(\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of source, and the line that it was inlined at, if it was."""

    file: str
    line: int
    caller: str = ""
    caller_line: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    Attributes:
        address: in bytes from the function's begin.
        guard: the predicate that it runs under, such as `!P0`; "" if always.
        opcode: with its modifiers: `LDG.E.128`. operands: as printed, in order.
        place: where in the source it is from; None where the code has no lines.
    """

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    place: Place | None = None

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> frozenset[str]:
        """What follows the opcode's name."""
        return frozenset(self.opcode.split(".")[1:])

    def reads(self) -> frozenset[int]:
        """Numbers of the registers that it takes, those of addresses included."""
        at = self._result_at
        return registers_of(self.operands if at is None else self.operands[at + 1 :])

    def writes(self) -> frozenset[int]:
        """Numbers of the registers that it changes."""
        at = self._result_at
        if at is None:
            return frozenset()
        pair = self.name in _PAIRS or bool(self.modifiers & {"WIDE", "F64"})
        return registers_of(self.operands[at : at + 1], 2 if pair else self.width // 32)

    @property
    def _result_at(self) -> int | None:
        """Which operand it changes; None if it changes memory or predicates only."""
        if not self.operands or self.name in _NO_RESULT or self.operands[0].startswith(("[", "`")):
            return None
        if not self.operands[0].startswith(("P", "UP")):
            return 0
        return 1 if self.name in _AFTER_A_PREDICATE and len(self.operands) > 1 else None

    @property
    def width(self) -> int:
        """Bits that an access to memory moves for one thread; 32 for what says nothing."""
        for bits, names in _WIDTHS:
            if self.modifiers & names:
                return bits
        return 32


_NO_RESULT = frozenset({"STG", "ST", "STS", "STL", "RED", "BRA", "EXIT", "BAR", "LDGSTS", "BSSY", "BSYNC", "NOP"})
# What sets a predicate first, and a register with it.
_AFTER_A_PREDICATE = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "LOP3", "MATCH"})
_PAIRS = frozenset({"DFMA", "DADD", "DMUL"})
_WIDTHS = (
    (256, frozenset({"256"})),
    (128, frozenset({"128"})),
    (64, frozenset({"64"})),
    (16, frozenset({"U16", "S16"})),
    (8, frozenset({"U8", "S8"})),
)


def registers_of(texts: tuple[str, ...], number: int = 1) -> frozenset[int]:
    """Numbers of the registers in operands, each of which begins at least so many."""
    found: set[int] = set()
    for text in texts:
        for match in _REGISTER.finditer(text):
            first = int(match[1])
            wide = max(number, 2 if ".64" in match[0] else 1)
            found.update(range(first, first + wide))
    return frozenset(found)


@dataclass(slots=True)
class Function:
    """One kernel's code, or that of a function that was not inlined.

    Attributes:
        name: as the compiler spells it; untrusted text. capability: such as (9, 0), (0, 0) if unknown.
        instructions: in order. targets: by index of a branch, the index of the instruction that it goes to.
    """

    name: str
    capability: tuple[int, int] = (0, 0)
    instructions: list[Instruction] = field(default_factory=list)
    targets: dict[int, int] = field(default_factory=dict)


def parse(text: str) -> list[Function]:
    """Functions of a disassembly, in order. What is no instruction, label or line is passed over."""
    arch = _ARCH.search(text[:4096])
    digits = next(filter(None, arch.groups()), "") if arch else ""
    capability = (int(digits[:-1]), int(digits[-1])) if len(digits) >= 2 else (0, 0)
    functions: list[Function] = []
    labels: dict[str, int] = {}
    place: Place | None = None
    at_line: int | None = None
    for number, line in enumerate(text.splitlines()):
        stripped = line.strip()
        if match := _FUNCTION.match(stripped):
            _connect(functions, labels)
            functions.append(Function(match[1], capability))
            labels, place = {}, None
        elif not functions:
            continue
        elif match := _LABEL.match(stripped):
            labels[match[1]] = len(functions[-1].instructions)
        elif match := _PLACE.search(stripped):
            # Of a line that was inlined, its own comes first; those around it follow at once.
            if at_line is None or number != at_line + 1:
                place = Place(match["file"], int(match["line"]), match["caller"] or "", int(match["caller_line"] or 0))
            at_line = number
        elif match := _INSTRUCTION.search(stripped):
            operands = tuple(part.strip() for part in match["operands"].split(",") if part.strip())
            functions[-1].instructions.append(
                Instruction(int(match["address"], 16), match["guard"] or "", match["opcode"], operands, place)
            )
    _connect(functions, labels)
    return [one for one in functions if one.instructions]


def _connect(functions: list[Function], labels: dict[str, int]) -> None:
    """Finds where the branches of the last function go."""
    if not functions:
        return
    code = functions[-1]
    by_address = {one.address: at for at, one in enumerate(code.instructions)}
    for at, one in enumerate(code.instructions):
        if one.name not in ("BRA", "BRX", "JMP") or not one.operands:
            continue
        match = _TARGET.search(one.operands[-1])
        if match is None:
            continue
        name = match[0]
        target = by_address.get(int(name, 16)) if name.startswith("0x") else labels.get(name)
        if target is not None and target < len(code.instructions):
            code.targets[at] = target
