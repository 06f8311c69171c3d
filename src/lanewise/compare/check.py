"""`check`: budgets against recordings. A limit on a time is decided by an interval and never by a mean.

over        the interval lies beyond the limit (and the test agrees): the budget is exceeded
within      the interval lies on the allowed side
undecided   the limit lies inside of the interval, or there are too few samples for one: more runs would tell
skipped     the recording does not hold the quantity
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from lanewise._version import __version__
from lanewise.compare.budget import QUANTITIES, Budget, Level
from lanewise.compare.compare import compare_arms
from lanewise.compare.environment import environment_differences
from lanewise.compare.model import Change, Difference
from lanewise.compare.outcome.changes import device_changes
from lanewise.compare.outcome.comparable import incomparable
from lanewise.compare.outcome.descriptions import change_label
from lanewise.compare.sides.arm import Arm, paired
from lanewise.compare.statistics import Estimate, estimate, judge
from lanewise.errors import UsageError
from lanewise.report.model import Location
from lanewise.report.quantity import format_quantity
from lanewise.tree.slowing.slower_contexts import RUNS, slower_contexts

__all__ = ["SCHEMA", "BudgetResult", "CheckReport", "Measure", "check"]

SCHEMA = "lanewise.check/1"

Status = Literal["over", "within", "undecided", "skipped"]
_UNCHANGED = frozenset({"same", "name", "moved"})
_NAMED = 4
# Quantities with the name that `Run.counts` has for them.
_COUNTED = {"launches": "launches", "kernels_per_step": "kernels", "copies": "copies", "waits": "waits"}
_TIMES = frozenset({"step_time", "device_time"})


class BudgetResult(msgspec.Struct, frozen=True):
    """One budget, decided.

    Attributes:
        key, level: of the budget.
        status: see the module.
        sentence: what was measured, against what, and how sure; holds untrusted text.
        value, limit: in `unit` (ns, share, count, bytes); None where there is none.
        low, high: 95 % interval of the value, or of its increase where that is limited; None where it is exact.
        line: of the budget in its file, 0 if unknown. location: in the program, where a finding names one.
        code: of a forbidden finding, "" otherwise.
    """

    key: str
    level: Level
    status: Status
    sentence: str
    unit: str = ""
    value: float | None = None
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    line: int = 0
    location: Location | None = None
    code: str = ""


class Measure(msgspec.Struct, frozen=True):
    """A measured quantity, for dashboards. `spread`: half of the 95 % interval, 0 where it is exact."""

    key: str
    label: str
    type: str
    value: float
    spread: float


class CheckReport(msgspec.Struct, frozen=True):
    """All budgets, decided.

    Attributes:
        passed: whether no budget of level `error` is over.
        undecided: budgets of level `error` that more runs would decide.
        difference: from the baseline, None without one.
    """

    schema: str
    version: str
    label: str
    runs: int
    budget_file: str
    passed: bool
    undecided: int
    results: list[BudgetResult]
    measures: list[Measure]
    difference: Difference | None = None


def check(arm: Arm, budgets: Sequence[Budget], *, baseline: Arm | None = None, budget_file: str = "") -> CheckReport:
    """Decide budgets.

    Args:
        arm: the recordings to check; several runs make times decidable.
        budgets: those of level `off` are left out.
        baseline: what increases and `kernels` refer to.
        budget_file: for the output.

    Raises:
        UsageError: a budget needs a baseline and there is none; or the baseline is not comparable.
    """
    wanted = [budget for budget in budgets if budget.level != "off"]
    if not wanted:
        raise UsageError("no budget is on: set one in [tool.lanewise.budget], for example launches = 40")
    lacking = [budget.key for budget in wanted if budget.needs_baseline]
    if lacking and baseline is None:
        raise UsageError(f"{', '.join(lacking)} refers to a baseline: name one (`lanewise baseline save` makes it)")
    difference = None
    if baseline is not None:
        _refuse(baseline, arm)
        difference = compare_arms([baseline, arm]).differences[0]
    results: list[BudgetResult] = []
    for budget in wanted:
        if budget.key == "forbid":
            results += _forbidden(arm, budget)
        elif budget.key == "kernels":
            results.append(_kernels(budget, difference, baseline, arm))
        elif budget.key == "contexts":
            results += _contexts(arm, baseline, budget)
        else:
            results += _quantity(arm, baseline, budget)
    errors = [result for result in results if result.level == "error"]
    return CheckReport(
        schema=SCHEMA,
        version=__version__,
        label=arm.label,
        runs=len(arm.runs),
        budget_file=budget_file,
        passed=not any(result.status == "over" for result in errors),
        undecided=sum(result.status == "undecided" for result in errors),
        results=results,
        measures=_measures(arm),
        difference=difference,
    )


def _refuse(baseline: Arm, arm: Arm) -> None:
    environment = environment_differences(baseline.typical.environment, arm.typical.environment)
    reasons = incomparable(baseline, arm, environment)
    if reasons:
        raise UsageError(f"the baseline is not comparable: {'; '.join(reasons)}. Record it again on this machine")


def _rounds(arm: Arm, key: str, *, unprofiled: bool) -> list[np.ndarray]:
    """Samples of a time in each run, ns."""
    if key == "step_time":
        return arm.step_rounds(unprofiled=unprofiled)
    return arm.work_rounds(range(len(arm.typical.work.at))) if arm.typical.work.device else []


def _quantity(arm: Arm, baseline: Arm | None, budget: Budget) -> list[BudgetResult]:
    """Results of one quantity: its limits, and its increase against the baseline."""
    type_, label = QUANTITIES[budget.key]
    values = _values(arm, budget.key)
    if not values:
        return [_result(budget, "skipped", f"{label}: not in this recording", type_)]
    found: list[BudgetResult] = []
    for limit, sign in ((budget.most, 1), (budget.least, -1)):
        if limit is not None:
            found.append(_limit(arm, budget, values, limit, sign))
    if budget.increase is not None and baseline is not None:
        found.append(_increase(arm, baseline, budget, values))
    return found


def _values(arm: Arm, key: str) -> list[float]:
    """The quantity in each run; empty where the recordings do not hold it."""
    runs = arm.runs
    if key == "step_time":
        return [run.step_ns for run in runs]
    if key == "device_time":
        return [run.device_ns for run in runs if run.work.device and run.device_ns]
    if key == "busy_share":
        return [run.busy_share for run in runs if run.work.device]
    if key == "memory_peak":
        return [float(run.memory_peak) for run in runs if run.memory_peak >= 0]
    if key == "operators":
        return [float(len(run.work.at)) for run in runs if not run.work.device]
    return [run.counts[_COUNTED[key]] for run in runs if run.work.device and _COUNTED[key] in run.counts]


def _limit(arm: Arm, budget: Budget, values: list[float], limit: float, sign: int) -> BudgetResult:
    """A limit on the quantity itself; `sign` is 1 for the most and -1 for the least."""
    type_, label = QUANTITIES[budget.key]
    middle = float(np.median(values))
    word = "at most" if sign > 0 else "at least"
    if budget.key in _TIMES:
        rounds = _rounds(arm, budget.key, unprofiled=arm.unprofiled)
        low, high = _interval(rounds, _between(arm, budget.key))
    else:
        # Counts, shares and sizes are exact in each run: their range over the runs is all there is to know.
        low, high = min(values), max(values)
    status = _side(low, high, limit, sign)
    sentence = f"{label}: {_show(type_, middle)}, allowed {word} {_show(type_, limit)}"
    if low is not None and high is not None and low != high:
        sentence += f" (95 % interval {_show(type_, low)} to {_show(type_, high)})"
    if status == "undecided":
        sentence += f"; {_too_few(arm)}"
    return _result(budget, status, sentence, type_, middle, limit, low, high)


def _side(low: float | None, high: float | None, limit: float, sign: int) -> Status:
    if low is None or high is None:
        return "undecided"
    if sign * low > sign * limit and sign * high > sign * limit:
        return "over"
    return "within" if sign * low <= sign * limit and sign * high <= sign * limit else "undecided"


def _increase(arm: Arm, baseline: Arm, budget: Budget, values: list[float]) -> BudgetResult:
    """The increase against the baseline; of a time by the interval of its ratio."""
    type_, label = QUANTITIES[budget.key]
    before, allowed = _values(baseline, budget.key), budget.increase or 0.0
    if not before:
        return _result(budget, "skipped", f"{label}: not in the baseline", type_)
    old, new = float(np.median(before)), float(np.median(values))
    if budget.key in _TIMES:
        unprofiled = arm.unprofiled and baseline.unprofiled
        a = _rounds(baseline, budget.key, unprofiled=unprofiled)
        b = _rounds(arm, budget.key, unprofiled=unprofiled)
        between = math.hypot(_between(baseline, budget.key), _between(arm, budget.key))
        # Against the baseline with the allowed increase on top: the interval and the test are then about the limit.
        raised = [rounds * (1 + allowed) for rounds in a]
        found = estimate(raised, b, paired=paired(baseline, arm), between=between)
        return _timed_increase(arm, budget, found, allowed, old, new)
    growth = new / old - 1 if old else math.inf if new else 0.0
    status: Status = "over" if growth > allowed + 1e-9 else "within"
    sentence = f"{label}: {_show(type_, new)} against {_show(type_, old)} in the baseline, allowed {_percent(allowed)}"
    return _result(budget, status, sentence, type_, new, old * (1 + allowed))


def _timed_increase(arm: Arm, budget: Budget, found: Estimate, allowed: float, old: float, new: float) -> BudgetResult:
    """Decide an increase by the ratio of the baseline, raised by what is allowed, to the recordings."""
    type_, label = QUANTITIES[budget.key]
    low, middle, high = ((1 + allowed) / ratio - 1 for ratio in (found.high, found.ratio, found.low))
    known = not math.isnan(found.low)
    if judge(found, within=0.0) == "slower":
        status: Status = "over"
    else:
        status = "within" if known and found.low >= 1 else "undecided"
    sentence = f"{label}: {_show(type_, new)} against {_show(type_, old)} in the baseline"
    if known:
        sentence += f", {_percent(middle)} (95 % interval {_percent(low)} to {_percent(high)})"
    sentence += f", allowed {_percent(allowed)}"
    if status == "undecided":
        sentence += f"; {_too_few(arm)}"
    interval = (low, high) if known else (None, None)
    return _result(budget, status, sentence, type_, new, old * (1 + allowed), *interval)


def _between(arm: Arm, key: str) -> float:
    return arm.between if key == "step_time" else arm.device_between


def _interval(rounds: Sequence[np.ndarray], between: float) -> tuple[float | None, float | None]:
    """95 % interval of the median of an arm, ns; None with too few samples."""
    found = estimate(rounds, [np.ones(2)], between=between)
    return (None, None) if math.isnan(found.low) else (found.low, found.high)


def _too_few(arm: Arm) -> str:
    runs = len(arm.runs)
    return f"{runs} run{'s' if runs > 1 else ''} cannot decide it: record {max(5, 2 * runs)}"


def _forbidden(arm: Arm, budget: Budget) -> list[BudgetResult]:
    """One result per forbidden finding that most runs have; one that says so if there is none."""
    found: list[BudgetResult] = []
    counts: dict[str, int] = {}
    for run in arm.runs:
        for code in {finding.code for finding in run.findings if finding.kind != "note"}:
            counts[code] = counts.get(code, 0) + 1
    for finding in arm.typical.findings:
        if finding.code.startswith(budget.codes) and counts.get(finding.code, 0) * 2 > len(arm.runs):
            text = f"{finding.code} {finding.name}: {finding.title}"
            found.append(
                msgspec.structs.replace(_result(budget, "over", text), location=finding.location, code=finding.code)
            )
    listed = ", ".join(budget.codes)
    return found or [_result(budget, "within", f"none of the forbidden findings ({listed}) holds")]


def _kernels(budget: Budget, difference: Difference | None, baseline: Arm | None, arm: Arm) -> BudgetResult:
    """Whether the step launches what it launched in the baseline."""
    changes: Sequence[Change]
    if difference is not None:
        changes = difference.device
    else:
        assert baseline is not None
        changes = device_changes(baseline, arm, pair=False).changes
    other = [change for change in changes if change.how not in _UNCHANGED]
    if not other:
        return _result(budget, "within", f"the step launches the same {len(arm.typical.work.at):,} ops as the baseline")
    named = ", ".join(f"{change.how}: {change_label(change)}" for change in other[:_NAMED])
    more = f" and {len(other) - _NAMED} more" if len(other) > _NAMED else ""
    return _result(budget, "over", f"the step launches other work than the baseline: {named}{more}")


def _contexts(arm: Arm, baseline: Arm | None, budget: Budget) -> list[BudgetResult]:
    """One result for each place that takes longer than in the baseline; one that says so if there is none."""
    sides = [[run.tree for run in side.runs if run.tree is not None] for side in (baseline, arm) if side is not None]
    if len(sides) < 2 or not all(sides):
        return [_result(budget, "skipped", "contexts: only trees of `lanewise watch` hold them")]
    allowed, runs = budget.increase or 0.0, min(map(len, sides))
    found: list[BudgetResult] = []
    for place in slower_contexts(sides[0], sides[1], increase=allowed)[:_NAMED]:
        unit, what = ("count", " calls") if place.what == "calls" else ("time", f" of {place.what}")
        sentence = (
            f"{' > '.join(place.path)}: {_show(unit, place.after)}{what} per step against "
            f"{_show(unit, place.before)} in the baseline ({place.after / place.before - 1:+.0%}, allowed +{allowed:.0%})"
        )
        if not place.decided:
            sentence += f"; {runs} run{'s' * (runs > 1)} a side cannot decide it: watch {RUNS} or more"
        status: Status = "over" if place.decided else "undecided"
        location = Location(place.file, place.line, place.function) if place.file else None
        result = _result(budget, status, sentence, unit, place.after, place.before * (1 + allowed))
        found.append(msgspec.structs.replace(result, location=location))
    none = f"no place takes more than {allowed:.0%} longer than in the baseline ({runs} run{'s' * (runs > 1)} a side)"
    return found or [_result(budget, "within", none)]


def _measures(arm: Arm) -> list[Measure]:
    found: list[Measure] = []
    for key, (type_, label) in QUANTITIES.items():
        values = _values(arm, key)
        if not values or (type_ == "count" and not any(values)):
            continue
        spread = 0.0
        if key in _TIMES:
            low, high = _interval(_rounds(arm, key, unprofiled=arm.unprofiled), 0.0)
            spread = (high - low) / 2 if low is not None and high is not None else 0.0
        found.append(Measure(key, label, type_, float(np.median(values)), spread))
    return found


def _result(
    budget: Budget,
    status: Status,
    sentence: str,
    unit: str = "",
    value: float | None = None,
    limit: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> BudgetResult:
    return BudgetResult(budget.key, budget.level, status, sentence, unit, value, limit, low, high, budget.line)


def _percent(share: float) -> str:
    return f"{100 * share:+,.{0 if abs(share) >= 1 else 1}f} %"


def _show(type_: str, value: float) -> str:
    return format_quantity(type_, value)
