"""`Ledger`: what has been tried so far, what came of each, and what is part of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lanewise.capture.profiling.history import noted
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.gate.speed.timing import adjust
from lanewise.fix.model import Attempt, Outcome, Timing

__all__ = ["Kept", "Ledger", "said"]


class Kept(NamedTuple):
    """A candidate and what was built of it; `proven`: whether it has passed the correctness gate."""

    candidate: Candidate
    variant: Variant
    proven: bool = True


class Ledger:
    """Written by every part of a trial, one after the other.

    Attributes:
        attempts: every candidate, in the order in which they were considered.
        kept: the plan so far; each was built on top of those before it.
        alternatives: ways to run the program as it was, which the plan has to beat. One that is not proven, because it was
            slower at first sight, takes part in the comparison and cannot become the plan.
        made_room: names of those that were given up for their memory.
        notes: for the reader of the plan.
        compile_s: the longest that a compiler has taken, seconds.
        judged_s: what it took to check and time a candidate, of those that were not cut short, seconds.
        expected_s: what that is thought to take before it has been seen.
        profilers: attached in this process before something was timed.
    """

    def __init__(self, profilers: Sequence[str] = ()) -> None:
        self.profilers = list(profilers)
        self.attempts: list[Attempt] = []
        self.kept: list[Kept] = []
        self.alternatives: list[Kept] = []
        self.made_room: set[str] = set()
        self.notes: list[str] = []
        self.compile_s = self.expected_s = 0.0
        self.judged_s: list[float] = []
        self._replaced: dict[str, list[Kept]] = {}

    def below(self, candidate: Candidate) -> list[Kept]:
        """What a candidate is built on: all that is kept, without an engine whose place it would take.

        A part takes the place of a graph, too: that replays what it was captured with.
        """
        return [one for one in self.kept if not (one.candidate.engine and _instead(candidate, one.candidate))]

    def keep(self, one: Kept) -> None:
        """Make it part of the plan, in the place of what it cannot be together with."""
        below = self.below(one.candidate)
        gone = [other for other in self.kept if other not in below]
        for other in gone:
            self.change(other.candidate.name, outcome="surpassed", reason=f"{one.candidate.name} is faster")
        self._replaced[one.candidate.name] = gone
        self.kept = [*below, one]

    @property
    def plan(self) -> Several:
        """What is kept, as one variant."""
        return Several([one.variant for one in self.kept])

    @property
    def judging_s(self) -> float:
        """The longest that it took to check and time a candidate, or is thought to take."""
        return max(self.judged_s, default=self.expected_s)

    @property
    def so_far(self) -> Several | None:
        """What a candidate is timed against; None while that is the program as it is."""
        return self.plan if self.kept else None

    @property
    def arms(self) -> int:
        """Ways to run the program that are compared in the end if one more is kept: eager counts twice."""
        return 3 + len(self.kept) + len(self.alternatives)

    @property
    def names(self) -> list[str]:
        """Of what is kept."""
        return [one.candidate.name for one in self.kept]

    def about_to_time(self) -> None:
        """Take down which profilers of ours have been attached by now."""
        self.profilers += [name for name in noted() if name not in self.profilers]

    def disable_all(self) -> None:
        """Take off everything that was built and is still held, last one first."""
        for one in [*self.kept, *self.alternatives][::-1]:
            one.variant.disable()

    def change(self, name: str, **changes: Any) -> None:
        """Other values in the attempts of that name."""
        self.attempts = [msgspec.structs.replace(a, **changes) if a.name == name else a for a in self.attempts]

    def drop(self, name: str, outcome: Outcome, reason: str) -> None:
        """Take a candidate, and what was built on top of it, out of the plan."""
        at = self.names.index(name)
        gone, self.kept = self.kept[at:], self.kept[:at]
        for one in gone[1:]:
            self.change(one.candidate.name, outcome=outcome, reason=f"it was built on {name}, which is not kept")
        self.change(name, outcome=outcome, reason=reason)

    def drop_chance(self, *, also_from_plan: bool) -> None:
        """Many candidates were timed: p values and verdicts are adjusted for it (Holm).

        Args:
            also_from_plan: drop what only looks faster because many were tried.
        """
        timed = [(at, attempt.timing) for at, attempt in enumerate(self.attempts) if attempt.timing is not None]
        for (at, _), timing in zip(timed, adjust([timing for _, timing in timed]), strict=True):
            attempt = self.attempts[at] = msgspec.structs.replace(self.attempts[at], timing=timing)
            if also_from_plan and attempt.outcome == "kept" and timing.verdict != "faster":
                reason = f"not beyond chance among {len(timed)} that were timed; {said(timing)}"
                self.drop(attempt.name, "not faster", reason)
                self._put_back(attempt.name)

    def _put_back(self, name: str) -> None:
        """What had to go for a candidate that turned out not to be faster."""
        for one in self._replaced.pop(name, []):
            self.kept.append(one)
            timing = next(a.timing for a in self.attempts if a.name == one.candidate.name)
            self.change(one.candidate.name, outcome="kept", reason=said(timing) if timing is not None else "")


def _instead(candidate: Candidate, engine: Candidate) -> bool:
    return candidate.engine or (candidate.part and not engine.part)


def said(timing: Timing) -> str:
    """A timing in words."""
    return f"{timing.verdict}: {timing.ratio:.3g}x, 95 % interval {timing.low:.3g} to {timing.high:.3g}"
