"""Whether two forms of a program print the same: numbers may differ by rounding, everything else may not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Printed", "compare_printed"]

_ROUNDING = 1e-4
"""Share by which a printed number may differ: single precision, through the sums and the steps of a short run."""

_NEAR_ZERO, _DECIMALS = 2e-7, 4
"""What cancels to nearly nothing may come out as another nothing; a last digit of so many decimals may be rounded the
other way."""

_NUMBER = re.compile(r"((?<![\w.])[-+]?(?:(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)(?!\w)))")


class Printed(NamedTuple):
    """What there is to say about the output of two forms of a program.

    Attributes:
        same: both print the same up to rounding, as far as the program itself prints the same in every run.
        steady: whether the program does. difference: the first one, for a reader; "" without any.
    """

    same: bool
    steady: bool
    difference: str


def compare_printed(before: Sequence[str], after: Sequence[str]) -> Printed:
    """Compare all outputs of the edited program with those of the program as it was.

    What changes from run to run without the edits cannot be held against them: such a number, or the whole text where
    not even its lines agree, is left out.
    """
    steady = len(set(before)) == 1
    patterns = [[_NUMBER.split(line) for line in text.splitlines()] for text in before]
    judged = steady or len({tuple(len(line) for line in text) for text in patterns}) == 1
    if not judged:
        return Printed(False, False, "")
    for text in after:
        if difference := _difference(patterns, text):
            return Printed(False, steady, difference)
    return Printed(True, steady, "")


def _difference(patterns: Sequence[Sequence[list[str]]], after: str) -> str:
    """The first line that differs; "" if none does. `patterns`: lines of every run, split at their numbers."""
    lines = after.splitlines()
    for of_runs, line in zip(zip(*patterns, strict=True), lines, strict=False):
        parts = _NUMBER.split(line)
        runs = list(zip(*of_runs, strict=True))
        alike = len(parts) == len(runs) and all(
            len(set(run)) > 1 or _same(run[0], part) for run, part in zip(runs, parts, strict=True)
        )
        if not alike:
            return f"{''.join(of_runs[-1]).strip()[:80]!r} became {line.strip()[:80]!r}"
    if len(lines) != len(patterns[0]):
        return f"{len(patterns[0])} lines became {len(lines)}"
    return ""


def _same(before: str, after: str) -> bool:
    if before == after:
        return True
    if not (_NUMBER.fullmatch(before) and _NUMBER.fullmatch(after)):
        return False
    if not (_is_rounded(before) and _is_rounded(after)):
        return False  # whole numbers count something
    a, b = float(before), float(after)
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.isnan(a) and math.isnan(b)
    return abs(a - b) <= max(_ROUNDING * max(abs(a), abs(b)), _NEAR_ZERO, 1.01 * _last_digit(before, after))


def _is_rounded(number: str) -> bool:
    return any(mark in number.lower() for mark in (".", "e", "nan", "inf"))


def _last_digit(*numbers: str) -> float:
    """What one of the last digit is worth; 0 where few are printed, so that it is more than rounding."""
    decimals = [0 if "e" in number.lower() else len(number.partition(".")[2]) for number in numbers]
    return 10.0 ** -decimals[0] if len(set(decimals)) == 1 and decimals[0] >= _DECIMALS else 0.0
