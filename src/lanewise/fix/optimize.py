"""`optimize`: tries what may make a program faster, keeps what is proven, and can undo all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from lanewise.capture.lazy_torch import torch_part
from lanewise.errors import UsageError
from lanewise.fix.bounds import Known, known_from
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.plans.plan import Plan
from lanewise.fix.plans.plan_cache import find_plan, keep_plan, plan_path
from lanewise.fix.subject import make_subject
from lanewise.fix.time_budget import Budget, seconds_of
from lanewise.fix.trial.course import run_trial

__all__ = ["ALLOWABLE", "optimize"]

ALLOWABLE = ("no-grad", "tf32", "bf16-autocast")
"""Candidates that change what a program computes, or what can be done with it: tried only if named in `allow`."""

_GOALS = ("latency", "throughput", "memory")


def optimize(
    target: Any,
    example_inputs: Any,
    *,
    goal: Literal["latency", "throughput", "memory"] = "latency",
    budget: str | float = "2m",
    allow: Sequence[str] = (),
    report: Any = None,
    only: Sequence[str] = (),
    trace: bool = True,
    progress: Callable[[str], None] | None = None,
    extra: Sequence[Candidate] = (),
    cache: bool = False,
) -> Plan:
    """Find what makes a program faster on this machine, and prove it.

    Every candidate has to be correct first (against double precision, on recorded and adversarial inputs), then faster
    beyond noise (in turns with the program as it is, without a profiler), and in the end a trace has to show the change
    that it predicts. The program is left as it was, however this ends; `plan.apply()` changes it.

    Args:
        target: a module, or a function (one that uses an optimizer is taken for a training step).
        example_inputs: arguments of a real call: a tensor, a tuple or a dict; a list of these for several calls.
        goal: `latency` wants the least time until a result is there, so every call is waited for; `throughput` the most
            calls in a time, one after the other (so are steps of a training in any case); `memory` the smallest peak that
            costs no time.
        budget: time to spend: `"2m"`, `"90s"`, or seconds. For `torch.compile` in its default mode it may be exceeded, by a
            minute at most: that is tried in any case.
        allow: names of candidates that may change what is computed; see `ALLOWABLE`.
        report: of a recorded run of this program (`lanewise.explain`, or a path to a trace): orders the candidates, and
            leaves out those whose findings are not there.
        only: try only these candidates.
        trace: record before and after, and keep only what the trace shows. A process that has had a profiler attached
            stays slower: measure nothing else in it afterwards. A plan made in such a process has lower confidence.
        progress: called with lines of text; by default they go to stderr if that is a terminal.
        extra: candidates of your own, tried last, gated like all others.
        cache: keep the plan, and take one that was kept before for this machine, these versions, this program and these
            calls: its results are verified again, its times are not measured again. One that ran out of its budget is
            found anew with a larger one.

    Raises:
        UsageError: the target, the inputs or an option do not fit.
        Whatever the program itself raises on its first call.
    """
    if goal not in _GOALS:
        raise UsageError(f"no goal {goal!r}; there are: {', '.join(_GOALS)}")
    named = [allow] if isinstance(allow, str) else list(allow)
    known_names = {*ALLOWABLE, *(candidate.name for candidate in extra)}
    if unknown := [name for name in named if name not in known_names]:
        raise UsageError(f"nothing called {', '.join(unknown)} to allow; there are: {', '.join(ALLOWABLE)}")
    # Loading it takes seconds, once in a process: no part of what trying takes.
    torch_part("torch._dynamo")
    clock = Budget(seconds_of(budget), progress)
    subject = make_subject(target, example_inputs)
    asked = {"goal": goal, "allow": sorted(named), "only": sorted(only), "trace": trace}
    path = plan_path(subject, asked) if cache else None
    if path is not None and (kept := find_plan(path, target, example_inputs, seconds=clock.seconds)) is not None:
        clock.tell(f"{subject.name}: the plan of {path.name} still holds")
        return kept
    plan = run_trial(subject, clock, goal=goal, allow=named, known=_known(report), only=only, trace=trace, extra=extra)
    if path is not None:
        keep_plan(plan, path, [name for name in plan.report.winner if name not in {c.name for c in extra}])
    return plan


def _known(report: Any) -> Known | None:
    if report is None:
        return None
    if not hasattr(report, "findings"):
        from lanewise.diagnose.explain import explain
        from lanewise.trace.model import Trace
        from lanewise.trace.reader import read

        report = explain(report if isinstance(report, Trace) else read(str(report)))
    return known_from(report)
