"""Loops of a function: a branch that goes back, and everything from where it goes to up to it."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.machine_code.disassembly import Function

__all__ = ["Loop", "loops_of"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop; compilers lay one out in a row.

    Attributes:
        first, last: indices of its first instruction and of the branch back. depth: 1 for an outermost one.
    """

    first: int
    last: int
    depth: int

    def __contains__(self, at: int) -> bool:
        return self.first <= at <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


def loops_of(code: Function) -> list[Loop]:
    """Loops in the order in which they begin, the outer one first. The trap behind a kernel's end, which branches to
    itself, is none."""
    spans: dict[int, int] = {}
    for at, target in code.targets.items():
        if target < at:
            # Several branches back to one place (`continue`) are one loop.
            spans[target] = max(spans.get(target, 0), at)
    ordered = sorted(spans.items(), key=lambda span: (span[0], -span[1]))
    return [Loop(first, last, sum(begin <= first and last <= end for begin, end in ordered)) for first, last in ordered]
