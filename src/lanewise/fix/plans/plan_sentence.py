"""A plan in one sentence."""

from __future__ import annotations

from lanewise.fix.model import PlanReport, Timing

__all__ = ["plan_sentence"]


def plan_sentence(report: PlanReport) -> str:
    """What came of it, in one or two sentences."""
    head = f"{report.subject}, {report.kind}"
    if not report.attempts:
        return f"{head}: nothing was tried."
    if not report.winner or report.against_eager is None:
        return f"{head}: nothing is kept; {_tried(report)}."
    text = f"{head}: {' + '.join(report.winner)} makes it {_times(report.against_eager)} as fast as it was"
    if report.against_best is not None and report.best_alternative != "eager":
        text += f", and {_times(report.against_best)} as fast as the best other way ({report.best_alternative})"
    sure = "" if report.confidence == "high" else f" ({report.confidence} confidence)"
    return f"{text}{sure}."


def _tried(report: PlanReport) -> str:
    timed = [attempt for attempt in report.attempts if attempt.timing is not None]
    right = sum(bool(attempt.checks) for attempt in timed)
    parts = [f"{right} of {len(report.attempts)} candidates {'was' if right == 1 else 'were'} right and timed"]
    if right < len(timed):
        parts.append(f"{len(timed) - right} slower at first sight")
    refused = sum(attempt.outcome == "refused" for attempt in report.attempts)
    return ", ".join([*parts, *([f"{refused} not allowed"] if refused else [])])


def _times(timing: Timing) -> str:
    return f"{timing.ratio:.2f}x"
