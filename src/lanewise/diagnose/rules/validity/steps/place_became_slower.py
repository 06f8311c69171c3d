"""MEA116."""

from __future__ import annotations

from lanewise.diagnose.evidence import table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import TIME, WHERE, Headings, headed
from lanewise.report.model import Location, TableColumn
from lanewise.report.quantity import count, ratio, text, time
from lanewise.tree.slowing.slowdown import Slowdown

_COLUMNS: Headings = [
    WHERE,
    headed(TIME, "before"),
    TableColumn("after", "time", "after"),
    TableColumn("than", "text", "than"),
    TableColumn("calls_before", "count", "calls before"),
    TableColumn("calls_after", "count", "calls after"),
]


def _of_tree(contexts: Contexts, *, increase_from: float = 0.05) -> Outcome:
    watched = contexts.tree.info.watched
    if watched is None:
        return NotApplicable("only lanewise watch follows a program")
    found = [one for one in watched.slowdowns if one.after >= one.before * (1 + increase_from)]
    if not found:
        return Clear("no place became slower" if watched.history else "the program was not followed for long enough")
    worst = max(found, key=_more)
    quantity = count if worst.what == "calls" else time
    rows = [
        {
            "where": " > ".join(one.path),
            "time": None if one.what == "calls" else one.before,
            "after": None if one.what == "calls" else one.after,
            "than": _than(one),
            "calls_before": one.before if one.what == "calls" else one.calls_before,
            "calls_after": one.after if one.what == "calls" else one.calls_after,
        }
        for one in sorted(found, key=_more, reverse=True)
    ]
    return Found(
        values={
            "place": text(" > ".join(worst.path[-2:])),
            "than": text(_than(worst)),
            "after": quantity(worst.after),
            "before": quantity(worst.before),
            "times": ratio(worst.after / worst.before if worst.before > 0 else 0.0),
            "what": text(" calls" if worst.what == "calls" else f" of {worst.what}"),
        },
        evidence=[table("Places that became slower", _COLUMNS, rows, limit=12)],
        location=Location(worst.file, worst.line, worst.function, "", "", []) if worst.file else None,
    )


def _than(found: Slowdown) -> str:
    return f"in {found.against}" if found.against else f"before step {found.since:,}"


def _more(found: Slowdown) -> float:
    """How much, for an order of ns; calls come last."""
    return found.after - found.before


@rule(
    "MEA116",
    "place-became-slower",
    kind="validity",
    title="{place} takes longer than {than}: {after}{what} per step instead of {before}.",
    of_tree=_of_tree,
)
def place_became_slower(facts: Facts, *, increase_from: float = 0.05) -> Outcome:
    """One place of the program takes longer since some step of the run, or than in a baseline.

    `lanewise watch` follows what each place takes, without what the machine as a whole became slower by, and says so as
    soon as chance is ruled out: about 100 steps after a change of 10 %. Means over the run mix both levels. With
    `--baseline` places are also held against trees of other runs: 10 % above each of four or more, 30 % above fewer.

    Costs: what the place takes longer now.

    Fix: look for what changed at that step: longer inputs, a cache that grew, another code path, a throttled device. Where
    the number of calls changed as well, the program does more; where it did not, the same work takes longer.

    Verify: watch again; the place takes what it took before.

    Silent: for traces, which are too short; for a change of the program as a whole (MEA115); for a place that takes less
    than 2 % of the step, or less than 5 % more than before; while other programs take the processor away.

    Source: sequential tests with few assumptions (Shin, Ramdas, Rinaldo: E-detectors, 2022); what is checked in
    docs/production.md.
    """
    return NotApplicable("a trace is too short to tell: lanewise watch follows a program")
