"""How far times can be believed in a process that has had a profiler: it stays slower, and not every way to run by as much.

Less host work looks better than it is there, so a gain has to be larger than what the profiler alone may have made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.report.model import Confidence

__all__ = ["MARGIN", "confidence", "margin", "profiler_note"]

MARGIN = 0.01
"""A change is applied without asking if the lower end of its interval is above 1 by this much."""

_AFTER_EFFECT_CUDA = 0.37
"""Most that a launch-bound step on an H100 was seen to be slower after torch's profiler: 1.15 to 1.37 times."""

_AFTER_EFFECT_HOST = 0.05
"""Without a card none was found: 1.00 (0.98 to 1.03) with operators, 1.01 (0.97 to 1.03) with stacks, ten processes each
(benchmarks/results/after-profiler-cpu-2026-11-28.json). This is what those intervals leave room for, rounded up."""


def margin(profilers: Sequence[str], *, cuda: bool) -> float:
    """What the lower end of an interval has to be above 1 for a change to be kept."""
    if not profilers:
        return MARGIN
    return _AFTER_EFFECT_CUDA if cuda else _AFTER_EFFECT_HOST


def confidence(profilers: Sequence[str], *, cuda: bool) -> Confidence:
    """Of the times of a plan."""
    if not profilers:
        return "high"
    return "low" if cuda else "medium"


def profiler_note(profilers: Sequence[str], *, cuda: bool) -> str:
    """For the reader of the plan; "" if there is nothing to say."""
    if not profilers:
        return ""
    return (
        f"Times are of {confidence(profilers, cuda=cuda)} confidence: a profiler had been attached in this process "
        f"({', '.join(profilers)}), and it stays slower after that. Only gains above "
        f"{100 * margin(profilers, cuda=cuda):.0f} % count. For certainty, optimize in a fresh process."
    )
