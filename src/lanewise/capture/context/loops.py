"""Where a function may go back to: the loops in its bytecode.

A thread that is seen at one place of a function and next at an earlier one either went around a loop or returned and came
again. Only the second is possible where there is no loop.
"""

from __future__ import annotations

import dis
from types import CodeType

__all__ = ["loops"]


def loops(code: CodeType) -> tuple[int, ...]:
    """Beginning and end of each stretch that a jump leads back through, offsets in bytes, one after another."""
    if not any(number in code.co_code[::2] for number in _BACKWARD):
        return ()
    found: list[int] = []
    for instruction in dis.get_instructions(code):
        if instruction.opcode in _BACKWARD and isinstance(instruction.argval, int):
            found += (instruction.argval, instruction.offset)
    return tuple(found)


# Operation codes are at even positions; the numbers and names differ from one Python to the next.
_BACKWARD = frozenset(number for name, number in dis.opmap.items() if "JUMP_BACKWARD" in name)
