"""MEA115."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.measure.validity.trend import LEAST_VALUES, Growth, growth_of
from lanewise.report.evidence_columns import CALLS, NUMBER, PERIOD, Headings, headed
from lanewise.report.quantity import count, share, time

_COLUMNS: Headings = [headed(NUMBER, "steps"), PERIOD, headed(CALLS, "calls per step")]
_MORE_CALLS = 0.02
_CALLS_TITLE = (
    "Steps do more and more: {calls_last} calls of operators and modules per step at the end, {calls_first} at the "
    "beginning; a step takes {last} instead of {first}."
)
_ROWS = 12


def _of_tree(contexts: Contexts, *, growth_from: float = 0.1) -> Outcome:
    watched = contexts.tree.info.watched
    periods = watched.history if watched is not None else ()
    if len(periods) < LEAST_VALUES:
        return NotApplicable(
            "the tree holds no history of the run: it was too short, is a sum of several, or not watched"
        )
    numbers = np.cumsum([0, *(period.steps for period in periods)]).tolist()
    rows = [
        {
            "number": f"{numbers[at]:,} to {numbers[at + 1]:,}",
            "period": period.ns / max(1, period.steps),
            "calls": period.calls / max(1, period.watched),
        }
        for at, period in enumerate(periods)
    ]
    # Steps are counted from where the history begins.
    return _outcome(rows, growth_from)


@rule(
    "MEA115",
    "steps-grow-longer",
    kind="validity",
    title="Steps grow longer: {last} at the end, {first} at the beginning ({growth} more).",
    of_tree=_of_tree,
)
def steps_grow_longer(facts: Facts, *, growth_from: float = 0.1) -> Outcome:
    """A step takes longer and longer, or does more and more.

    What is kept from step to step and gone through in each of them: a list of losses with their graphs, a cache that is
    never cleared, a history that is concatenated, hooks that are registered again. A mean over the run then describes no
    step of it. Where calls grow as well, the program does more; where they do not, the same work takes longer: memory that
    is nearly full, clocks that go down, another program beside it.

    Costs: what the last steps take longer than the first ones, and more with every further step.

    Fix: keep numbers instead of tensors (`losses.append(loss.item())` at a rare step, or `loss.detach()`), bound what is
    kept (`collections.deque(maxlen=...)`), register hooks once. `lanewise watch` names the place that became slower.

    Verify: the steps at the end of a longer run take as long as those at its beginning.

    Silent: below 12 steps of a trace or stretches of a watched run; where the last third takes less than 10 % longer than
    the first, or goes up and down (Mann and Kendall's test, four standard deviations).

    Source: PyTorch's FAQ (a model that reports memory growth keeps the history of its loss); trainers with ever longer
    steps in public bug reports.
    """
    steady = np.flatnonzero(facts.steps.steady)
    if not facts.trace.steps.recorded or len(steady) < LEAST_VALUES:
        return NotApplicable(f"fewer than {LEAST_VALUES} steady steps are recorded")
    number, period = facts.trace.steps.number, facts.steps.table["period"]
    rows = [{"number": f"{int(number[row])}", "period": float(period[row]), "calls": 0.0} for row in steady.tolist()]
    return _outcome(rows, growth_from)


def _outcome(rows: list[dict[str, str | float]], growth_from: float) -> Outcome:
    longer = growth_of([float(row["period"]) for row in rows])
    more = growth_of([float(row["calls"]) for row in rows]) or Growth(0, 0)
    if longer is None or longer.by < growth_from:
        if more.by < growth_from:
            return Clear("steps do not grow longer" if longer is None else f"steps grow by {longer.by:.0%}")
        middle = [
            float(np.median([float(row["period"]) for row in part]))
            for part in (rows[: len(rows) // 3], rows[-(len(rows) // 3) :])
        ]
        longer = Growth(*middle)
    known = any(row["calls"] for row in rows)
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(int)).tolist()
    shown = _COLUMNS if known else _COLUMNS[:2]
    return Found(
        values={
            "first": time(longer.first),
            "last": time(longer.last),
            "growth": share(max(0.0, longer.by)),
            "calls_first": count(round(more.first)),
            "calls_last": count(round(more.last)),
        },
        title=_CALLS_TITLE if more.by >= min(growth_from, _MORE_CALLS) else None,
        evidence=[
            table("Steps in the course of the run", shown, [{c.key: rows[at][c.key] for c in shown} for at in kept])
        ],
    )
