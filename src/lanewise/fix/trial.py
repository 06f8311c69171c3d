"""`Trial`: the course of one `optimize`: candidates one by one, then all that is left against each other, then a trace."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lanewise._version import __version__
from lanewise.compare.diff import diff
from lanewise.errors import LanewiseError, UsageError
from lanewise.fix.bounds import Known, bound_of, order, why_pruned
from lanewise.fix.budget import Budget, OutOfTime
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.compiler import compiler_counts, compiler_notes
from lanewise.fix.fingerprint import machine_of
from lanewise.fix.gate.correctness import Correctness, Result, patches_of
from lanewise.fix.gate.memory import peak_bytes
from lanewise.fix.gate.physics import floor_us, impossible
from lanewise.fix.gate.seen import Seen, record_calls, see
from lanewise.fix.gate.timing import (
    NULL,
    Schedule,
    adjust,
    arm_times,
    measure,
    only_for_seen_inputs,
    settled,
    timing_of,
)
from lanewise.fix.gate.worklist import WorkList, work_of
from lanewise.fix.model import SCHEMA, ArmTime, Attempt, Outcome, PlanReport, Shown, Timing
from lanewise.fix.plan import Plan, combined
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call
from lanewise.record.torched import torch_part

__all__ = ["Trial"]

torch: Any = torch_part()

EAGER, PLAN = "eager", "plan"

_MARGIN = 0.01
"""A change is applied without asking if the lower end of its interval is above 1 by this much."""

_NEVER_BELOW = 0.98
"""A plan is never slower than this against the best of the other ways to run the program."""

_LESS_MEMORY, _MORE_TIME = 0.98, 1.05
"""With `memory` as the goal: the share of the peak that must go, and the time that it may cost."""

_GATE_SHARE, _RESERVE_SHARE, _LONGEST_TIMING_S = 0.08, 0.25, 6.0


class Kept(NamedTuple):
    """A candidate that is part of the plan so far."""

    candidate: Candidate
    variant: Variant


class Comparison(NamedTuple):
    """All ways to run the program, in turns: their times, the plan against eager, and against the best other way."""

    final: list[ArmTime]
    eager: Timing | None
    other: Timing | None
    best: str


class Trial:
    """One run of `optimize`; see there for what the arguments mean."""

    def __init__(
        self,
        subject: Subject,
        clock: Budget,
        *,
        goal: str,
        allow: Sequence[str],
        known: Known | None,
        only: Sequence[str],
        trace: bool,
        extra: Sequence[Candidate],
    ) -> None:
        self.subject, self.clock, self.goal, self.allow, self.known = subject, clock, goal, list(allow), known
        self._only, self._trace, self._extra = list(only), trace, list(extra)
        self._attempts: list[Attempt] = []
        self._kept: list[Kept] = []
        self._alternatives: list[Kept] = []
        self._notes: list[str] = []
        self._compile_s = 0.0
        self._peak_before = -1
        self._before_after = ""

    def run(self) -> Plan:
        """Try everything. The program is left as it was, also by an error or an interrupt."""
        self.state = State(self.subject)
        try:
            return self._run()
        finally:
            for variant in [kept.variant for kept in (*self._kept, *self._alternatives)][::-1]:
                variant.disable()
            self.state.restore()

    # -- the course ------------------------------------------------------------------------------------------------

    def _run(self) -> Plan:
        subject, clock = self.subject, self.clock
        clock.tell(f"{subject.name}: checking how its results can be verified")
        self.gate = Correctness(subject, self.state, seconds=_GATE_SHARE * clock.seconds)
        self.work: WorkList = work_of(subject, self.state)
        self.floor = floor_us(subject, self.work)
        candidates = self._candidates()
        for at, candidate in enumerate(candidates):
            clock.tell(f"{candidate.name}: {candidate.what}")
            attempt = self._try(candidate, len(candidates) - at)
            self._attempts.append(attempt)
            clock.tell(f"{candidate.name}: {attempt.outcome}" + (f" ({attempt.reason})" if attempt.reason else ""))
        self._holm()
        found = self._final()
        self._remember_peaks()
        if self._trace and self._kept:
            before = len(self._kept)
            self._credit()
            if self._kept and len(self._kept) < before:
                found = self._again()
        return self._plan(found)

    def _candidates(self) -> list[Candidate]:
        found = [*catalogue(self.subject, self.work), *self._extra]
        if unknown := [name for name in self._only if name not in {candidate.name for candidate in found}]:
            raise UsageError(
                f"no candidate called {', '.join(unknown)} here; there are: {', '.join(c.name for c in found) or 'none'}"
            )
        return order([c for c in found if not self._only or c.name in self._only], self.known)

    # -- one candidate ---------------------------------------------------------------------------------------------

    def _try(self, candidate: Candidate, remaining: int) -> Attempt:
        if candidate.refused_unless_allowed and candidate.name not in self.allow:
            reason = f"{candidate.refused_unless_allowed}; allow it by name: allow=[{candidate.name!r}]"
            return self._attempt(candidate, "refused", reason)
        bound = bound_of(candidate, self.work)
        if reason := why_pruned(candidate, bound, self.known):
            return self._attempt(candidate, "pruned", reason, bound=bound)
        left = self.clock.left - _RESERVE_SHARE * self.clock.seconds
        if left <= 0 or (candidate.compiles and self._compile_s > left):
            needed = (
                f"; the last compilation took {self._compile_s:.0f} s" if candidate.compiles and self._compile_s else ""
            )
            return self._attempt(candidate, "out of budget", f"{max(left, 0):.0f} s were left{needed}", bound=bound)
        variant: list[Variant] = []
        try:
            with self.clock.at_most(left):
                return self._measure(candidate, variant, bound, left / remaining)
        except OutOfTime:
            return self._attempt(
                candidate, "out of budget", f"not done in the {left:.0f} s that were left", bound=bound
            )
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return self._attempt(candidate, "failed", reason, bound=bound)
        finally:
            for part in (*variant, *[kept.variant for kept in self._kept[::-1]]):
                part.disable()
            self.state.restore()

    def _measure(self, candidate: Candidate, made: list[Variant], bound: float, share: float) -> Attempt:
        """Build, check and time a candidate on top of what is kept so far."""
        below = [kept.variant for kept in self._kept]
        compiled_before = compiler_counts()
        began = time.monotonic()
        variant = candidate.build(self.subject)
        made.append(variant)
        whole = Several([*below, variant])
        self._first_call(whole)
        prepare_s = time.monotonic() - began
        if candidate.compiles:
            self._compile_s = max(self._compile_s, prepare_s)
        result = self._check(candidate, whole)
        notes = _fallback_notes(whole) + compiler_notes(compiled_before)
        facts: dict[str, Any] = {"bound": bound, "prepare_s": prepare_s, "checks": result.checks, "notes": notes}
        facts["numeric_class"] = result.numeric_class
        if not result.passed:
            return self._attempt(candidate, "wrong", result.reason, **facts)
        arms: dict[str, Variant | None] = {EAGER: None, NULL: None, PLAN: whole}
        base = EAGER
        if below:
            base = "before"
            arms |= {base: Several(list(below)), NULL: Several(list(below))}
        schedule = Schedule(max(0.5, min(_LONGEST_TIMING_S, share * 0.6)))
        samples = measure(
            self.subject, self.state, arms, schedule, done=lambda rounds: settled(rounds, base, PLAN, margin=_MARGIN)
        )
        timing = timing_of(samples.rounds, base, PLAN)
        facts |= {"timing": timing, "repaid_after": _repaid(timing, prepare_s)}
        problem = (
            samples.wrong.get(PLAN, "")
            or (only_for_seen_inputs(samples, base, PLAN) if timing.verdict == "faster" else "")
            or impossible(timing.after_us, self.floor)
        )
        if problem:
            return self._attempt(candidate, "wrong", problem, **facts | {"numeric_class": "changes semantics"})
        after = self._check(candidate, whole, again=True)
        facts["checks"] = result.checks + after.checks
        if not after.passed:
            return self._attempt(candidate, "wrong", after.reason, **facts | {"numeric_class": "changes semantics"})
        if self.subject.cuda or self.goal == "memory":
            facts |= self._peaks(whole)
        kept = Kept(candidate, variant)
        if candidate.alternative and not below:
            self._alternatives.append(kept)
        reason = self._not_good_enough(timing, facts)
        if reason:
            return self._attempt(candidate, "not faster", reason, **facts)
        self._kept.append(kept)
        return self._attempt(candidate, "kept", _said(timing), **facts)

    def _first_call(self, whole: Several) -> None:
        """Compile, capture, warm up: what the first calls do and no later one."""
        whole.enable()
        try:
            for patch in patches_of(whole):
                patch.dispatch.learning = True
            for _ in range(2):
                for call in self.subject.calls:
                    self.subject.run(copy_call(call))
            self.subject.wait()
        finally:
            whole.disable()
            self.state.restore()

    def _check(self, candidate: Candidate, whole: Several, *, again: bool = False) -> Result:
        return self.gate.check(combined([*[k.candidate for k in self._kept], candidate]), whole, again=again)

    def _not_good_enough(self, timing: Timing, facts: dict[str, Any]) -> str:
        if self.goal == "memory":
            before, after = facts["peak_before"], facts["peak_after"]
            if before <= 0 or after > _LESS_MEMORY * before:
                return f"the peak stays at {after:,} of {before:,} bytes"
            return (
                ""
                if timing.after_us <= _MORE_TIME * timing.before_us
                else "it saves memory but costs time: " + _said(timing)
            )
        if timing.verdict == "faster" and timing.low > 1 + _MARGIN:
            return ""
        return _said(timing)

    def _peaks(self, whole: Several) -> dict[str, int]:
        if self._peak_before < 0:
            self._peak_before = peak_bytes(self.subject, self.state, None)
        return {"peak_before": self._peak_before, "peak_after": peak_bytes(self.subject, self.state, whole)}

    def _attempt(self, candidate: Candidate, outcome: Outcome, reason: str, **facts: Any) -> Attempt:
        facts["bound"] = 0.0 if math.isinf(facts.get("bound", 0.0)) else facts.get("bound", 0.0)
        return Attempt(candidate.name, candidate.family, candidate.region, candidate.what, outcome, reason, **facts)

    # -- all together ----------------------------------------------------------------------------------------------

    def _holm(self) -> None:
        """Many candidates were timed: what only looks faster because many were tried is not kept."""
        timed = [at for at, attempt in enumerate(self._attempts) if attempt.timing is not None]
        for at, timing in zip(timed, adjust([self._attempts[at].timing for at in timed]), strict=True):  # type: ignore[misc]
            attempt = self._attempts[at]
            self._attempts[at] = _replace(attempt, timing=timing)
            if attempt.outcome == "kept" and timing.verdict != "faster" and self.goal != "memory":
                self._drop(
                    attempt.name, "not faster", f"not beyond chance among {len(timed)} that were timed; {_said(timing)}"
                )

    def _drop(self, name: str, outcome: Outcome, reason: str) -> None:
        """Take a candidate, and what was built on top of it, out of the plan."""
        at = next(place for place, kept in enumerate(self._kept) if kept.candidate.name == name)
        gone, self._kept = self._kept[at:], self._kept[:at]
        for place, attempt in enumerate(self._attempts):
            if attempt.name == name:
                self._attempts[place] = _replace(attempt, outcome=outcome, reason=reason)
            elif any(kept.candidate.name == attempt.name for kept in gone):
                self._attempts[place] = _replace(
                    attempt, outcome=outcome, reason=f"it was built on {name}, which is not kept"
                )

    def _final(self) -> Comparison:
        """The plan against all other ways to run the program; the best of them becomes the plan if it is better."""
        kept = self._kept
        if kept and not kept[0].candidate.alternative:
            self._build_alternatives()
        others = [one for one in self._alternatives if [one.candidate.name] != [k.candidate.name for k in kept]]
        if not kept and not others:
            return Comparison([], None, None, EAGER)
        arms: dict[str, Variant | None] = {EAGER: None, NULL: None}
        arms |= {one.candidate.name: one.variant for one in others}
        if kept:
            arms[PLAN] = Several([one.variant for one in kept])
        seconds = max(1.0, min(2 * _LONGEST_TIMING_S, 0.5 * self.clock.left))
        self.clock.tell(f"all of it in turns: {', '.join(name for name in arms if name != NULL)}")
        samples = measure(self.subject, self.state, arms, Schedule(seconds))
        final = [time for time in arm_times(samples.rounds) if time.name != NULL]
        medians = {time.name: time.median_us for time in final}

        def against(before: str, after: str) -> Timing:
            return timing_of(samples.rounds, before, after, looks=1, null_of=EAGER)

        names = [EAGER, *(one.candidate.name for one in others)]
        best = min(names, key=medians.__getitem__)
        if not kept:
            return Comparison(final, None, None, best)
        eager, other = against(EAGER, PLAN), against(best, PLAN)
        if problem := samples.wrong.get(PLAN):
            self._drop(kept[0].candidate.name, "wrong", problem)
            return Comparison(final, None, None, best)
        if self.goal == "memory":
            return Comparison(final, eager, other, best)
        if other.ratio < _NEVER_BELOW and best != EAGER and best not in samples.wrong:
            winner = next(one for one in others if one.candidate.name == best)
            self._notes.append(f"{best} alone is faster than what was kept step by step; it is the plan")
            for one in kept:
                self._mark(one.candidate.name, "not faster", f"{best} alone is faster")
            self._kept = [winner]
            eager = against(EAGER, best)
            self._mark(best, "kept", _said(eager))
            runner = min((name for name in [*names, PLAN] if name != best), key=medians.__getitem__)
            return Comparison(final, eager, against(runner, best), runner)
        if eager.verdict != "faster":
            reason = f"not faster in the final comparison: {_said(eager)}"
            self._drop(kept[0].candidate.name, "not faster", reason)
            return Comparison(final, None, None, best)
        return Comparison(final, eager, other, best)

    def _again(self) -> Comparison:
        """What is left of the plan, measured once more after a part of it was dropped."""
        self._notes.append(
            "measured again after a part was not credited, in a process that had had a profiler attached"
        )
        arms = {EAGER: None, NULL: None, PLAN: Several([one.variant for one in self._kept])}
        samples = measure(self.subject, self.state, arms, Schedule(max(1.0, min(_LONGEST_TIMING_S, self.clock.left))))
        eager = timing_of(samples.rounds, EAGER, PLAN, looks=1)
        final = [time for time in arm_times(samples.rounds) if time.name != NULL]
        if eager.verdict != "faster":
            self._drop(self._kept[0].candidate.name, "not faster", f"not faster by itself: {_said(eager)}")
        return Comparison(final, eager, eager, EAGER)

    def _build_alternatives(self) -> None:
        """The compiler and the graph on the program as it was: what was tried was built on what had been kept before."""
        tried = {attempt.name for attempt in self._attempts if attempt.timing is not None}
        tried -= {one.candidate.name for one in self._alternatives}
        for candidate in catalogue(self.subject, self.work):
            if not candidate.alternative or candidate.name not in tried:
                continue
            left = self.clock.left - 0.5 * _RESERVE_SHARE * self.clock.seconds
            if left <= self._compile_s:
                self._notes.append(f"no time was left to measure {candidate.name} on the program as it was")
                continue
            variant: list[Variant] = []
            try:
                with self.clock.at_most(left):
                    variant.append(candidate.build(self.subject))
                    self._first_call(Several(variant))
                    if self.gate.check(candidate, variant[0]).passed:
                        self._alternatives.append(Kept(candidate, variant[0]))
            except (OutOfTime, Exception) as error:
                self._notes.append(
                    f"{candidate.name} could not be measured on the program as it was: {type(error).__name__}"
                )
            finally:
                for part in variant:
                    part.disable()
                self.state.restore()

    def _mark(self, name: str, outcome: Outcome, reason: str) -> None:
        for at, attempt in enumerate(self._attempts):
            if attempt.name == name:
                self._attempts[at] = _replace(attempt, outcome=outcome, reason=reason)

    def _remember_peaks(self) -> None:
        """The plan's peak; on the host, where the profiler has to listen, after the last timing."""
        if not self._kept or any(a.peak_after >= 0 for a in self._attempts if a.outcome == "kept") or not self._trace:
            return
        peaks = self._peaks(Several([one.variant for one in self._kept]))
        name = self._kept[-1].candidate.name
        self._attempts = [_replace(a, **peaks) if a.name == name else a for a in self._attempts]

    def _credit(self) -> None:
        """Record before and after; what the trace does not show is not kept."""
        self.clock.tell("recording before and after")
        with tempfile.TemporaryDirectory(prefix="lanewise-") as folder:
            try:
                before = self._see(Path(folder), "before", None)
                after = self._see(Path(folder), "after", Several([one.variant for one in self._kept]))
                comparison = diff(before.path, after.path, labels=("before", "after"), anyway=True)
                self._before_after = comparison.differences[0].verdict
            except LanewiseError as error:
                self._notes.append(f"no trace could be recorded, so nothing is confirmed by one: {error}")
                return
        for one in list(self._kept):
            shown = [Shown(p.what, *p.holds(before, after)) for p in one.candidate.predictions]
            self._attempts = [_replace(a, shown=shown) if a.name == one.candidate.name else a for a in self._attempts]
            missing = [s for s in shown if not s.seen]
            if missing and one in self._kept:
                told = "; ".join(f"{s.prediction}: {s.detail}" for s in missing)
                self._drop(one.candidate.name, "not credited", f"the trace does not show it ({told})")

    def _see(self, folder: Path, name: str, variant: Variant | None) -> Seen:
        from lanewise.trace.reader import read

        if variant is not None:
            variant.enable()
        try:
            path = str(record_calls(self.subject, self.state, folder, name))
            return see(read(path, cache=False), path)
        finally:
            if variant is not None:
                variant.disable()
            self.state.restore()

    def _plan(self, found: Comparison) -> Plan:
        if self.subject.cuda and not self._trace:
            self._notes.append("nothing was confirmed by a trace")
        report = PlanReport(
            schema=SCHEMA,
            version=__version__,
            subject=self.subject.name,
            kind=self.subject.kind,
            goal=self.goal,
            machine=dict(machine_of(self.subject)),
            attempts=self._attempts,
            winner=[one.candidate.name for one in self._kept],
            final=found.final,
            against_eager=found.eager if self._kept else None,
            against_best=found.other if self._kept else None,
            best_alternative=found.best,
            reference=self.gate.what,
            notes=self._notes,
            before_after=self._before_after,
            seconds=self.clock.spent,
            budget_s=self.clock.seconds,
        )
        self.clock.tell(f"done: {' + '.join(report.winner) or 'nothing kept'}")
        plan = Plan(self.subject, report, [(one.candidate, one.variant) for one in self._kept], allowed=self.allow)
        plan.reset_counts()
        return plan


def _said(timing: Timing) -> str:
    return f"{timing.verdict}: {timing.ratio:.3g}x, 95 % interval {timing.low:.3g} to {timing.high:.3g}"


def _repaid(timing: Timing, prepare_s: float) -> int:
    saved_us = timing.before_us - timing.after_us
    return math.ceil(prepare_s * 1e6 / saved_us) if saved_us > 0 and prepare_s > 0 else 0


def _fallback_notes(whole: Several) -> list[str]:
    """Whether the patches were reached at all while they were verified."""
    patches = patches_of(whole)
    idle = [patch for patch in patches if not patch.dispatch.hits]
    return [f"{len(idle)} of {len(patches)} patched modules never took their fast path"] if idle else []


def _replace(attempt: Attempt, **changes: Any) -> Attempt:
    import msgspec

    return msgspec.structs.replace(attempt, **changes)
