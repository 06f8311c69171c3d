"""Whether an answer is right: numbers with or without their unit, words in any case."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lanewise.errors import UsageError
from lanewise.tour.lesson import Lesson, Unit

__all__ = ["Truth", "is_right", "shown_truth"]

_NUMBER = re.compile(r"([0-9][0-9.,]*)\s*([a-zµμ%×]*)", re.IGNORECASE)
_NAMES: dict[str, str] = {
    "us": "us", "µs": "us", "μs": "us", "microseconds": "us", "ms": "ms", "milliseconds": "ms", "s": "s", "seconds": "s",
    "x": "x", "×": "x", "times": "x", "%": "%", "percent": "%", "calls": "calls",
}  # fmt: skip
_SMALLER = {("us", "ms"): 1e-3, ("s", "ms"): 1e3, ("ms", "us"): 1e3, ("s", "us"): 1e6}


@dataclass(frozen=True)
class Truth:
    """The answer as computed: a number in the lesson's unit, or words. Where it was measured more than once, any value from
    `low` to `high` is right."""

    value: float = 0.0
    words: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


def is_right(answer: str, truth: Truth, lesson: Lesson) -> bool:
    """Whether an answer is right.

    Raises:
        UsageError: a number is asked for, and this is none, or one of something else.
    """
    if lesson.unit == "word":
        return answer.strip().strip("`'\"").removesuffix(".json.gz").lower() in {word.lower() for word in truth.words}
    value = _value(answer, lesson.unit)
    low, high = (truth.value if end is None else end for end in (truth.low, truth.high))
    allowance = max(lesson.least, lesson.within * high)
    return low - allowance <= value <= high + allowance


def shown_truth(truth: Truth, lesson: Lesson) -> str:
    """The answer as it is told."""
    if lesson.unit == "word":
        return truth.words[0]
    value = abs(truth.value)  # never -0.0
    digits = 0 if lesson.unit == "calls" else 1 if lesson.unit in ("us", "%") else 2
    gap = "" if lesson.unit == "x" else " "
    return f"{value:.{digits}f}{gap}{lesson.unit}"


def _value(answer: str, unit: Unit) -> float:
    found = _NUMBER.fullmatch(answer.strip())
    named = _NAMES.get(found[2].lower()) if found and found[2] else unit
    if found is None or named is None or (named != unit and (named, unit) not in _SMALLER):
        example = {"us": "120 us", "ms": "1.5 ms", "x": "1.5x", "%": "20 %"}.get(unit, "12")
        raise UsageError(f"{answer!r} is no answer to this question, which asks for a number such as {example!r}")
    # 2,030 has thousands, 2,14 a decimal comma.
    number = re.sub(r",(?=\d{3}(\D|$))", "", found[1]).replace(",", ".")
    try:
        return float(number) * _SMALLER.get((named, unit), 1.0)
    except ValueError:
        raise UsageError(f"{found[1]!r} is no number") from None
