"""What a lesson is, and the lessons there are."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

__all__ = ["Lesson", "Unit", "lessons"]

Unit = Literal["us", "ms", "x", "%", "calls", "word"]


class Lesson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One lesson. Texts are paragraphs, with code in backticks.

    Attributes:
        name: what progress remembers it by.
        title, question: one line each.
        about: what one needs to know to find the answer.
        commands: what the reader runs, in the folder of the tour.
        unit: of the answer: a time, a ratio, a percentage, a count; `word` where it is none.
        truth: the function of `lanewise.tour.truths` that computes the answer from the reader's files.
        hint: where to look, for an answer that was wrong.
        explanation: what the answer means.
        within: how far off a number may be, as a share of it; 0 for one that must be exact.
        least: how far off it may always be, in its unit.
    """

    name: str
    title: str
    question: str
    about: str
    commands: list[str]
    unit: Unit
    truth: str
    hint: str
    explanation: str
    within: float = 0.0
    least: float = 0.0


class _Lessons(msgspec.Struct, forbid_unknown_fields=True):
    lesson: list[Lesson]


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons, in order."""
    text = (files("lanewise.tour") / "lessons.toml").read_bytes()
    return tuple(msgspec.toml.decode(text, type=_Lessons).lesson)
