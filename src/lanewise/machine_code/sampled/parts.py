"""Where in a kernel its samples lie, from the outside in: loops, the line, the line inlined there, and the wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from lanewise.machine_code.disassembly import Function, Instruction
from lanewise.machine_code.loop_nest import Loop, loops_of
from lanewise.machine_code.sampled.stalls import Stalls
from lanewise.machine_code.stall_reasons import wait_called

__all__ = ["Path", "parts_of"]

Path = tuple[tuple[str, str], ...]
"""A place in a kernel: what it is (`loop`, `line`, `stall`) and its name, the outermost first."""


def parts_of(stalls: Iterable[Stalls], *, least: float = 0.01) -> dict[str, dict[Path, float]]:
    """Shares of a kernel's samples by where they lie, by its name. They add up to at most 1.

    Kernels of one name (compiled more than once) are one, as traces and trees have names alone.

    Args:
        stalls: of kernels. least: share of a kernel's samples below which a part is left out.
    """
    numbers: dict[str, Counter[Path]] = {}
    for one in stalls:
        numbers.setdefault(one.name, Counter()).update(_numbers(one))
    found: dict[str, dict[Path, float]] = {}
    for name, counted in numbers.items():
        every = counted.total()
        found[name] = {path: number / every for path, number in counted.most_common() if number >= least * every}
    return found


def _numbers(stalls: Stalls) -> Counter[Path]:
    found = Counter[Path]()
    if stalls.kernel is None or not stalls.instructions:
        for reason, number in stalls.reasons.items():
            found[(("stall", wait_called(reason)),)] += number
        return found
    code = stalls.kernel.code
    loops = [(loop, _line_of(loop, code)) for loop in loops_of(code)]
    index_of = {one.address: index for index, one in enumerate(code.instructions)}
    for one in stalls.instructions:
        around = (("loop", f"loop at {line}") for loop, line in loops if line and index_of[one.at.address] in loop)
        # A loop that the compiler cut in two, one inside the other, is one.
        where = (*dict.fromkeys(around), *_lines(one.at))
        for reason, number in one.reasons.items():
            found[*where, ("stall", wait_called(reason))] += number
    return found


def _lines(instruction: Instruction) -> Path:
    place = instruction.place
    if place is None:
        return ()
    here = ("line", f"{PurePath(place.file).name}:{place.line}")
    return (("line", f"{PurePath(place.caller).name}:{place.caller_line}"), here) if place.caller else (here,)


def _line_of(loop: Loop, code: Function) -> str:
    """Where a loop begins: the first line of the file that most of it is from, "" if it has none."""
    lines = [_outer(one) for one in code.instructions[loop.first : loop.last + 1] if one.place is not None]
    if not lines:
        return ""
    file = Counter(file for file, _ in lines).most_common(1)[0][0]
    return f"{PurePath(file).name}:{min(line for of, line in lines if of == file)}"


def _outer(instruction: Instruction) -> tuple[str, int]:
    place = instruction.place
    assert place is not None
    return (place.caller, place.caller_line) if place.caller else (place.file, place.line)
