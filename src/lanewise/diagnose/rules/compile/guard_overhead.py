"""CMP104."""

from __future__ import annotations

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import CALLS, LONGEST, TOTAL, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, share, time


@rule(
    "CMP104",
    "guard-overhead",
    title="Checking guards takes {time} per step ({share}): {lookups} cache lookups of {each}.",
)
def guard_overhead(facts: Facts, *, share_from: float = 0.1, call_above_us: float = 20.0) -> Outcome:
    """Finding the right compiled graph takes a good part of the step.

    Before a compiled function runs, its guards are checked against the arguments, the module and the global values it
    depends on. Thousands of guards, or many small compiled functions, make that expensive.

    Costs: the lookups.

    Fix: compile higher up, so that one lookup serves more work; have fewer graphs; filter guards that cannot fail
    (`torch.compile(options={"guard_filter_fn": ...})`).

    Verify: the sum of the lookups.

    Silent: at 10 % of the step or less, and where a lookup takes 20 us or less, whatever their sum.

    Source: pytorch/pytorch pull request 191387; at most 8 % of the step in our H100 recordings.
    """
    trace, regions = facts.trace, facts.regions
    if len(regions.lookup) == 0:
        return NotApplicable("no cache lookups")
    lookups = facts.steady_events(regions.lookup)
    if len(lookups) == 0:
        return Clear("no cache lookups in steady steps")
    total = float(trace.duration[lookups].sum()) / facts.steady_count
    each = float(trace.duration[lookups].mean())
    part = total / max(1.0, facts.steps.period_ns)
    if part <= share_from or each <= call_above_us * 1e3:
        return Clear(f"lookups take {part:.1%} of the step, {each / 1e3:.1f} us each")
    calls = len(lookups) / facts.steady_count
    rows = [{"calls": round(calls, 1), "each": each, "longest": int(trace.duration[lookups].max()), "total": total}]
    return Found(
        values={"time": time(total), "share": share(part), "lookups": count(round(calls, 1)), "each": time(each)},
        change=remove(facts, lookups),
        evidence=[
            table(
                "Cache lookups",
                [CALLS, TableColumn("each", "time", "mean"), LONGEST, headed(TOTAL, "time per step")],
                rows,
            )
        ],
        location=locate(facts, int(lookups[0])),
        events=lookups.tolist(),
    )
