"""Numbers that the 32 threads of a warp hold, as far as they are known, and arithmetic on them.

A number may lack a part that is the same for all threads and known only when the kernel runs (an argument, the block's
number). So the address `x + 4 * (128 * block + thread)` is known but for where it begins, and that is enough to tell how a
warp's accesses lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

__all__ = [
    "OTHER",
    "UNIFORM",
    "WARP",
    "ZERO",
    "Lanes",
    "Value",
    "bits_of",
    "chosen_of",
    "number_of",
    "product_of",
    "right_of",
    "sum_of",
]

WARP = 32
_ONES = np.ones(WARP, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """A number for each thread of a warp.

    Attributes:
        numbers: of the 32 threads. unit: 0 if they are exact; otherwise they lack a part that is the same for all of them,
            of which only this power of two is known to divide it.
        far: threads with different ones are further apart by a multiple of something that only the launch knows.
    """

    numbers: np.ndarray
    unit: int = 0
    far: np.ndarray | None = None

    @property
    def same(self) -> bool:
        """Whether all threads hold the same."""
        return self.far is None and bool((self.numbers == self.numbers[0]).all())

    @property
    def constant(self) -> int | None:
        """The number that all threads hold, where it is known."""
        return int(self.numbers[0]) if self.unit == 0 and self.same else None


class _Unknown(Enum):
    OTHER = "nothing is known"


OTHER = _Unknown.OTHER
"""Of which nothing is known."""
Value = Lanes | _Unknown
UNIFORM = Lanes(0 * _ONES, 1)
"""The same for all threads."""
ZERO = Lanes(0 * _ONES)

_OR_AND, _AND_OR = 0xF8, 0xEA
"""Tables of `a | b & c` and of `a & b | c`."""
_INVERTED = {0x0F: 0, 0x33: 1, 0x55: 2}
"""Tables of `not`, and the operand that they take."""
_SUMS = {0xFC: (0, 1), 0x3C: (0, 1), 0xFA: (0, 2), 0x5A: (0, 2), 0xEE: (1, 2), 0x66: (1, 2)}
"""Tables of `or` and `xor`, and the operands that they take: with no common bit they are the sum."""


def number_of(number: int) -> Lanes:
    """What is the same number for all threads."""
    return Lanes(_signed(number * _ONES))


def chosen_of(where: np.ndarray | None, yes: Value, no: Value) -> Value:
    """One value where something holds, the other elsewhere."""
    if where is not None and (where.all() or not where.any()):
        return yes if where.all() else no
    if not isinstance(yes, Lanes) or not isinstance(no, Lanes):
        return yes if yes is no else OTHER
    if yes.unit == no.unit == 0 and where is not None:
        return Lanes(np.where(where, yes.numbers, no.numbers))
    # Whichever it is, the threads lie as far apart.
    alike = np.array_equal(yes.numbers - yes.numbers[0], no.numbers - no.numbers[0])
    alike &= yes.far is no.far or (yes.far is not None and no.far is not None and np.array_equal(yes.far, no.far))
    return Lanes(yes.numbers, 1, yes.far) if alike and where is None else OTHER


def _signed(numbers: np.ndarray) -> np.ndarray:
    """Numbers of 32 bits with their sign."""
    return ((numbers + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _common(*units: int) -> int:
    """What divides all of the unknown parts."""
    known = [unit & -unit for unit in units if unit]
    return min(known, default=0)


def sum_of(*parts: Value) -> Value:
    lanes = [part for part in parts if isinstance(part, Lanes)]
    if len(lanes) < len(parts):
        return OTHER
    numbers = sum((part.numbers for part in lanes), start=0 * _ONES)
    # Nobody says how two distances compare: threads are near each other where both are the same.
    together: np.ndarray | None = None
    for part in lanes:
        if part.far is not None:
            together = part.far if together is None else together * _FAR + part.far
    return Lanes(numbers, _common(*(part.unit for part in lanes)), together)


_FAR = 1009


def product_of(a: Value, b: Value) -> Value:
    for one, other in ((a, b), (b, a)):
        factor = one.constant if isinstance(one, Lanes) else None
        if factor == 0:
            return ZERO
        if factor is not None:
            return other if not isinstance(other, Lanes) else _times(other, factor)
    if not isinstance(a, Lanes) or not isinstance(b, Lanes):
        return OTHER
    if a.unit == b.unit == 0:
        return Lanes(a.numbers * b.numbers)
    if a.same and b.same:
        return UNIFORM
    for one, other in ((a, b), (b, a)):
        if one.same:
            # `thread * columns`: how far threads of different numbers are apart, only the launch says.
            return Lanes(0 * _ONES, 1, other.numbers if other.far is None else other.far * _FAR + other.numbers)
    return OTHER


def _times(value: Lanes, factor: int) -> Lanes:
    return Lanes(factor * value.numbers, abs(factor) * value.unit, value.far)


def right_of(value: Value, amount: int | None) -> Value:
    """Shifted to the right."""
    if not isinstance(value, Lanes) or amount is None or value.far is not None:
        return UNIFORM if isinstance(value, Lanes) and value.same else OTHER
    shifted, unit = value.numbers >> amount, 1 << amount
    if value.unit == 0 or value.unit % unit == 0:
        return Lanes(shifted, value.unit >> amount)
    if (shifted == shifted[0]).all():
        return UNIFORM
    return Lanes(shifted, 1) if (value.numbers % unit == 0).all() else OTHER


def bits_of(values: list[Value], table: int | None) -> Value:
    """What `LOP3` makes of three values: bit by bit what a table of eight says."""
    lanes = [value for value in values if isinstance(value, Lanes)]
    if table is None or len(lanes) < 3 or any(one.far is not None for one in lanes):
        return OTHER
    a, b, c = lanes
    if a.unit == b.unit == c.unit == 0:
        numbers = 0 * _ONES
        for at in range(8):
            if table >> at & 1:
                picked = [one.numbers if at & bit else ~one.numbers for one, bit in zip(lanes, (4, 2, 1), strict=True)]
                numbers |= picked[0] & picked[1] & picked[2]
        return Lanes(_signed(numbers))
    if a.same and b.same and c.same:
        return UNIFORM
    if table in _INVERTED:
        of = lanes[_INVERTED[table]]
        return Lanes(-of.numbers - 1, of.unit)
    if table in (_OR_AND, _AND_OR):
        of, mask, more = (b, c, a) if table == _OR_AND else (a, b, c)
        if of.constant is not None:
            of, mask = mask, of
        if mask.constant is not None:
            kept = _masked(of, mask.constant)
            return _united(kept, more) if isinstance(kept, Lanes) else kept
    if table in _SUMS:
        first, second = (lanes[at] for at in _SUMS[table])
        return _united(first, second)
    return _picked(lanes, table)


def _picked(lanes: list[Lanes], table: int) -> Value:
    """Bits of one value where those of a mask are set, and of another where they are not."""
    for at, weight in enumerate((4, 2, 1)):
        mask = lanes[at].constant
        if mask is None:
            continue
        first, second = (one for one in range(3) if one != at)
        parts: list[Value] = []
        for kept, base in ((mask, weight), (~mask, 0)):
            above, below = (4, 2, 1)[first], (4, 2, 1)[second]
            made = sum((table >> (base + place) & 1) << at for at, place in enumerate((0, below, above, above + below)))
            if made not in _PICKS:
                break
            which = _PICKS[made]
            if which is not None:
                parts.append(_masked(lanes[(first, second)[which]], kept))
        else:
            return sum_of(*parts)
    return OTHER


_PICKS: dict[int, int | None] = {0b1100: 0, 0b1010: 1, 0: None}
"""Of two bits, by what a table makes of 11, 10, 01 and 00: which one it takes."""


def _united(a: Lanes, b: Lanes) -> Value:
    """Two values of which no bit is common to both: their sum. Where the unknown part of one lies above the other."""
    for one, other in ((a, b), (b, a)):
        fits = (other.numbers >= 0).all() and (other.numbers < (one.unit & -one.unit)).all()
        if other.constant == 0:
            return one
        if other.unit == 0 and fits and not (one.numbers & other.numbers).any():
            return Lanes(one.numbers + other.numbers, one.unit)
    return sum_of(a, b) if a.same or b.same else OTHER


def _masked(value: Lanes, mask: int | None) -> Value:
    """What a mask leaves of a value that is known but for a part that is the same for all threads."""
    if mask is None:
        return OTHER
    if value.unit == 0:
        return Lanes(value.numbers & mask)
    known = value.unit & -value.unit
    if 0 <= mask < known:
        return Lanes(value.numbers & mask)
    if (value.numbers >= 0).all() and (value.numbers < known).all():
        return Lanes(value.numbers & mask, value.unit)
    # Blocks begin at multiples of a warp's work: the threads' bits are their own.
    bits = int(np.bitwise_or.reduce(value.numbers - value.numbers.min()))
    if mask & bits == bits:
        return Lanes(value.numbers, 1)
    return UNIFORM if mask & bits == 0 else OTHER
