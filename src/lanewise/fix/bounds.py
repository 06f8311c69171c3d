"""What cannot pay is not tried: every candidate that is left out is recorded with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.work.worklist import WorkList

__all__ = ["Known", "bound_of", "known_from", "order", "why_pruned"]

_LEAST = 1.01
"""Below this bound on the whole a candidate is not tried."""


def bound_of(candidate: Candidate, work: WorkList) -> float:
    """Highest ratio that the candidate can reach: Amdahl's law with its share given back entirely; 0 if unknown."""
    if candidate.compiles and work.operators:
        # Fusion saves the traffic between operators and their dispatch; with one operator there is none of either.
        return float("inf") if work.operators > 1 or candidate.replaces else 1.0
    return 0.0 if candidate.saves >= 1 else 1 / (1 - candidate.saves)


class Known(NamedTuple):
    """What a report on the program says.

    Attributes:
        worth: time by finding, us per step. clear: codes that were looked for and are not there. step_us: step time.
        alone: what mending each finding alone takes off the step, as predicted; us.
    """

    worth: Mapping[str, float]
    clear: Collection[str]
    step_us: float
    alone: Mapping[str, float] = {}

    def predicted(self, candidate: Candidate) -> float:
        """The ratio that is predicted of a candidate, from the finding of those it answers that gives most by itself; 0
        where the report says nothing of it."""
        gain = max((self.alone[code] for code in candidate.answers if code in self.alone), default=0.0)
        return self.step_us / (self.step_us - gain) if 0 < gain < self.step_us else 0.0


def why_pruned(candidate: Candidate, bound: float, known: Known | None) -> str:
    """Why not to try it, "" if there is no reason. Without a report nothing is known of what it would give back."""
    if candidate.hopeless:
        return candidate.hopeless
    # What anybody has with one line is found out and not reckoned: a compiler may also choose another library's kernel.
    if bound and bound < _LEAST and not candidate.owed:
        return f"it can save at most {100 * (bound - 1):.1f} % of the time"
    if known is None or not candidate.answers:
        return ""
    mine = {code: known.worth[code] for code in candidate.answers if code in known.worth}
    if not mine and all(code in known.clear for code in candidate.answers):
        return f"the report has none of the findings that it answers ({', '.join(candidate.answers)})"
    most = max(mine.values(), default=0.0)
    if known.step_us and most and 1 / (1 - min(most / known.step_us, 0.99)) < _LEAST:
        return f"its finding would save {most:.3g} of {known.step_us:.3g} us"
    return ""


def known_from(report: Any) -> Known:
    """What matters here of a report: what each finding gives, by itself or after others, whichever is more."""
    worth = {f.code: max(f.recoverable_us_per_step, f.alone_us_per_step) for f in report.findings}
    alone = {f.code: f.alone_us_per_step for f in report.findings if f.kind == "problem" and f.alone_us_per_step > 0}
    clear = {check.code for check in report.checks if check.status == "clear"}
    return Known(worth, clear, float(report.regime.step_us), alone)


def order(candidates: Collection[Candidate], known: Known | None) -> list[Candidate]:
    """The candidates as given; in each family those come first that are predicted to give most, then those that answer a
    larger finding."""
    if known is None:
        return list(candidates)
    place = {candidate.family: at for at, candidate in reversed(list(enumerate(candidates)))}
    worth = {c.name: max((known.worth.get(code, 0.0) for code in c.answers), default=0.0) for c in candidates}
    return sorted(candidates, key=lambda c: (place[c.family], -known.predicted(c), -worth[c.name]))
