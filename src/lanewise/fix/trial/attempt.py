"""One candidate on top of what is kept so far: built, checked, timed, checked again; kept or not, and why."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from lanewise.fix.bounded_compilation import wait_for_workers
from lanewise.fix.bounds import Known, bound_of, why_pruned
from lanewise.fix.candidates.candidate import Candidate, NotApplicableError, Several, Variant
from lanewise.fix.candidates.capturing import put_right
from lanewise.fix.compiler_notes import compiler_counts, compiler_notes
from lanewise.fix.gate.correctness import Result, patches_of
from lanewise.fix.gate.speed.physics import impossible
from lanewise.fix.gate.speed.repeats import only_for_seen_inputs
from lanewise.fix.gate.speed.timing import NULL, Samples, Schedule, measure, settled, timing_of
from lanewise.fix.model import Attempt, Outcome, Timing
from lanewise.fix.plans.plan import combined
from lanewise.fix.process_settings import put_back
from lanewise.fix.time_budget import OutOfTime
from lanewise.fix.trial.confidence import margin
from lanewise.fix.trial.ledger import Kept, Ledger, said
from lanewise.fix.trial.prepare import first_calls, wait_after_compiling
from lanewise.fix.trial.room import make_room
from lanewise.fix.trial.shares import OWED_S, most_s, needed_s
from lanewise.fix.trial.variant_memory import Peaks
from lanewise.fix.trial.workbench import LONGEST_TIMING_S, Bench
from lanewise.fix.typed_torch import torch

__all__ = ["try_candidate"]

_WITHOUT, _WITH = "before", "plan"

_FIRST_LOOK = Schedule(0.25, looks=(5,), enough=5, patience=8.0)
_CLEARLY_SLOWER, _CLEARLY_FASTER = 0.9, 1.2
"""The end of the interval of a first look below which nothing more is done, and above which a short timing is enough."""

_QUICK_S = 1.5

_WORKERS_S = 3.0
"""For the compiler's processes to start, seconds; they have begun with the trial."""

_LESS_MEMORY, _MORE_TIME = 0.98, 1.05
"""With `memory` as the goal: the share of the peak that must go, and the time that it may cost."""


def try_candidate(
    bench: Bench,
    ledger: Ledger,
    peaks: Peaks,
    known: Known | None,
    candidate: Candidate,
    untried: Sequence[Candidate],
) -> None:
    """Try a candidate and enter what came of it. Whatever happens, the program is as it was afterwards.

    Args:
        known: what a report on the program says. untried: candidates still to try, this one included.
    """
    once = partial(_attempt, bench, ledger, peaks, known, candidate, untried)
    attempt = _with_room(bench, ledger, candidate, once)
    if known is not None:
        attempt = msgspec.structs.replace(attempt, predicted=round(known.predicted(candidate), 4))
    wait_after_compiling(bench, ledger, candidate.name)
    ledger.attempts.append(attempt)
    bench.clock.tell(f"{candidate.name}: {attempt.outcome}" + (f" ({attempt.reason})" if attempt.reason else ""))


def _with_room(bench: Bench, ledger: Ledger, candidate: Candidate, once: Callable[[], Attempt]) -> Attempt:
    """The attempt; once more with what was only kept for later given back, where memory did not hold it."""
    with suppress(torch.OutOfMemoryError):
        return once()
    make_room(bench, ledger)
    try:
        return once()
    except torch.OutOfMemoryError as error:
        return _entry(candidate, "failed", _reason(error), bound=bound_of(candidate, bench.work))


def _attempt(
    bench: Bench,
    ledger: Ledger,
    peaks: Peaks,
    known: Known | None,
    candidate: Candidate,
    untried: Sequence[Candidate],
) -> Attempt:
    if candidate.refused_unless_allowed and candidate.name not in bench.allow:
        reason = f"{candidate.refused_unless_allowed}; allow it by name: allow=[{candidate.name!r}]"
        return _entry(candidate, "refused", reason)
    if reason := _unfinished(ledger, candidate):
        return _entry(candidate, "pruned", reason)
    bound = bound_of(candidate, bench.work)
    if reason := why_pruned(candidate, bound, known):
        return _entry(candidate, "pruned", reason, bound=bound)
    clock = bench.clock
    left = clock.left - bench.reserve_s(ledger.arms)
    owed = OWED_S - clock.lent if candidate.owed else 0.0
    needed = needed_s(candidate, compile_s=ledger.compile_s, judging_s=ledger.judging_s)
    # Before anything has been checked, trying is the way to know.
    if not owed and (left <= 0 or (left < needed and ledger.judged_s)):
        reason = f"{max(left, 0):.1f} s were left, and it needs about {needed:.1f} s"
        return _entry(candidate, "out of budget", reason, bound=bound)
    made: list[Variant] = []
    left = max(left, 0.0)
    most = left + owed if owed else most_s(candidate, untried, left, needed, judging_s=ledger.judging_s)
    began = clock.spent
    try:
        with put_right(bench.subject.device), clock.at_most(most):
            attempt = _measured(bench, ledger, peaks, candidate, made, bound, left / len(untried))
        if attempt.outcome == "kept":
            ledger.keep(Kept(candidate, made[0]))
        return attempt
    except OutOfTime:
        if candidate.compiles:
            ledger.compile_s = max(ledger.compile_s, most)
        reason = f"stopped after {most:.3g} s, its share of the {left:.3g} s that were left"
        if owed:
            reason = f"stopped after {most:.3g} s: {left:.3g} s were left, and {owed:.3g} s beyond the budget"
        return _entry(candidate, "out of budget", reason, bound=bound)
    except NotApplicableError as error:
        return _entry(candidate, "pruned", str(error), bound=bound)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return _entry(candidate, "failed", _reason(error), bound=bound)
    finally:
        if owed:
            clock.lent += max(0.0, clock.spent - began - left)
        for variant in (*made, *[one.variant for one in ledger.kept[::-1]]):
            variant.disable()
        put_back(bench.gate.settings)
        bench.state.restore()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _unfinished(ledger: Ledger, candidate: Candidate) -> str:
    """Why what a candidate takes up is not there, "" if it is."""
    before = next((one for one in ledger.attempts if one.name == candidate.follows), None)
    if before is None or before.outcome not in ("failed", "out of budget", "pruned"):
        return ""
    return f"{before.name}, which it takes up, was not finished"


def _measured(
    bench: Bench,
    ledger: Ledger,
    peaks: Peaks,
    candidate: Candidate,
    made: list[Variant],
    bound: float,
    share: float,
) -> Attempt:
    """The attempt of a candidate that is worth one. What is built goes into `made` at once, so that it can be taken off."""
    compiled_before = compiler_counts()
    began = time.monotonic()
    variant = candidate.build(bench.subject)
    made.append(variant)
    below = ledger.below(candidate)
    whole = Several([*[one.variant for one in below], variant])
    first_calls(bench, whole, compiles=candidate.compiles)
    built = time.monotonic()
    prepare_s = built - began
    if patches_of(variant) and not any(patch.dispatch.hits for patch in patches_of(variant)):
        reason = "none of the modules that it replaces is reached by the recorded calls"
        return _entry(candidate, "pruned", reason, bound=bound, prepare_s=prepare_s)
    if candidate.compiles:
        ledger.compile_s = max(ledger.compile_s, prepare_s)
    facts: dict[str, Any] = {"bound": bound, "prepare_s": prepare_s}
    first = _first_look(bench, ledger, whole) if bench.goal != "memory" else None
    if first is not None and first.verdict == "slower" and first.high < _CLEARLY_SLOWER:
        if candidate.alternative and not below:
            ledger.alternatives.append(Kept(candidate, variant, proven=False))
        facts["notes"] = ["it was slower at first sight, so its results were not verified"]
        facts |= {"numeric_class": "changes semantics"} if candidate.refused_unless_allowed else {}
        return _entry(candidate, "not faster", said(first), **facts | {"timing": first})
    # What is found out once, for all candidates, is not what it takes to judge one.
    learnt = bench.gate.get_ready()
    result = _check(bench, ledger, candidate, whole)
    facts["notes"] = _fallback_notes(whole) + compiler_notes(compiled_before)
    facts |= {"checks": result.checks, "numeric_class": result.numeric_class}
    if not result.passed:
        return _entry(candidate, "wrong", result.reason, **facts)
    samples = _timed(bench, ledger, candidate, whole, min(share, _QUICK_S) if _clear(first) else share)
    timing = timing_of(samples.rounds, _WITHOUT, _WITH)
    facts |= {"timing": timing, "repaid_after": _repaid(timing, prepare_s)}
    doubt, proven = "", False
    if timing.verdict == "faster":
        doubt, proven = only_for_seen_inputs(samples.repeats, _WITHOUT, _WITH, gain=timing.ratio)
    if problem := (doubt if proven else "") or _not_real(bench, samples, timing):
        return _entry(candidate, "wrong", problem, **facts | {"numeric_class": "changes semantics"})
    after = _check(bench, ledger, candidate, whole, again=True)
    facts["checks"] = result.checks + after.checks
    ledger.judged_s.append(time.monotonic() - built - learnt)
    if not after.passed:
        return _entry(candidate, "wrong", after.reason, **facts | {"numeric_class": "changes semantics"})
    if bench.subject.cuda or bench.goal == "memory":
        facts |= peaks.of(whole)
    if candidate.alternative and not below:
        ledger.alternatives.append(Kept(candidate, variant))
    if reason := doubt or _not_good_enough(bench, ledger, timing, facts):
        return _entry(candidate, "not faster", reason, **facts)
    return _entry(candidate, "kept", said(timing), **facts)


def _check(bench: Bench, ledger: Ledger, candidate: Candidate, whole: Several, *, again: bool = False) -> Result:
    below = [one.candidate for one in ledger.below(candidate)]
    return bench.gate.check(combined([*below, candidate]), whole, again=again)


def _timed(bench: Bench, ledger: Ledger, candidate: Candidate, whole: Several, share: float) -> Samples:
    """The plan so far, and with the candidate, in turns."""

    ledger.about_to_time()
    needed = margin(ledger.profilers, cuda=bench.subject.cuda)
    precision = max(one.precision for one in (candidate, *[kept.candidate for kept in ledger.kept]))
    arms: dict[str, Variant | None] = {_WITHOUT: ledger.so_far, NULL: ledger.so_far, _WITH: whole}
    seconds = max(0.5, min(LONGEST_TIMING_S, share * 0.6))
    # A busy machine makes few rounds in a short time: then it takes longer, as with fewer nothing can be concluded.
    schedule = Schedule(seconds, patience=max(3.0, LONGEST_TIMING_S / seconds))
    return measure(
        bench.subject,
        bench.state,
        arms,
        schedule,
        done=lambda rounds: settled(rounds, _WITHOUT, _WITH, margin=needed),
        new_inputs=True,
        each=bench.each,
        apart=lambda at: bench.gate.apart(at, precision),
    )


def _first_look(bench: Bench, ledger: Ledger, whole: Several) -> Timing:
    """A few rounds before anything is proven: what is clearly slower need not be."""
    wait_for_workers(_WORKERS_S)
    ledger.about_to_time()
    arms: dict[str, Variant | None] = {_WITHOUT: ledger.so_far, _WITH: whole}
    return timing_of(
        measure(bench.subject, bench.state, arms, _FIRST_LOOK, each=bench.each).rounds, _WITHOUT, _WITH, looks=1
    )


def _clear(first: Timing | None) -> bool:
    """Whether a first look says that a short measurement will do."""
    return first is not None and first.low > _CLEARLY_FASTER


def _not_real(bench: Bench, samples: Samples, timing: Timing) -> str:
    """What is wrong with the time itself: other results while the clock ran, or less than the work takes."""
    return samples.wrong.get(_WITH, "") or impossible(timing.after_us, bench.floor)


def _not_good_enough(bench: Bench, ledger: Ledger, timing: Timing, facts: dict[str, Any]) -> str:
    if bench.goal == "memory":
        before, after = facts["peak_before"], facts["peak_after"]
        if before <= 0 or after > _LESS_MEMORY * before:
            return f"the peak stays at {after:,} of {before:,} bytes"
        if timing.after_us > _MORE_TIME * timing.before_us:
            return f"it saves memory but costs time: {said(timing)}"
        return ""
    needed = margin(ledger.profilers, cuda=bench.subject.cuda)
    if timing.verdict == "faster" and timing.low > 1 + needed:
        return ""
    return said(timing) + _what_is_missing(ledger, timing, needed)


def _what_is_missing(ledger: Ledger, timing: Timing, needed: float) -> str:
    """What keeps a candidate that may be faster from being kept."""
    if timing.verdict == "not enough samples":
        return "; a larger budget, or a machine that is less busy, would tell"
    if timing.verdict != "faster":
        return ""
    where = " after a profiler in this process" if ledger.profilers else ""
    return f"; only gains above {100 * needed:.0f} % count{where}"


def _entry(candidate: Candidate, outcome: Outcome, reason: str, **facts: Any) -> Attempt:
    bound = facts.get("bound", 0.0)
    facts["bound"] = 0.0 if math.isinf(bound) else bound
    return Attempt(candidate.name, candidate.family, candidate.region, candidate.what, outcome, reason, **facts)


def _repaid(timing: Timing, prepare_s: float) -> int:
    saved_us = timing.before_us - timing.after_us
    return math.ceil(prepare_s * 1e6 / saved_us) if saved_us > 0 and prepare_s > 0 else 0


def _fallback_notes(whole: Several) -> list[str]:
    """Whether the patches were reached at all while they were verified."""
    patches = patches_of(whole)
    idle = [patch for patch in patches if not patch.dispatch.hits]
    return [f"{len(idle)} of {len(patches)} patched modules never took their fast path"] if idle else []
