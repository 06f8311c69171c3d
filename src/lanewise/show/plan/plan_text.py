"""A plan in a terminal, as Markdown and as JSON: what was tried, what came of each, and how it all compares."""

from __future__ import annotations

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from lanewise.fix.model import Attempt, PlanReport, Timing
from lanewise.fix.plans.plan_sentence import plan_sentence
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import format_quantity
from lanewise.show.report.json import to_plain
from lanewise.show.report.markdown import escape, table_markdown
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.safe_text import clean

__all__ = [
    "attempt_lines",
    "attempts_table",
    "final_table",
    "footer_lines",
    "plan_json",
    "plan_markdown",
    "plan_sentence",
    "print_plan",
    "render_plan",
]

_LONGEST = 2000
"""Characters of a line: enough for all that we say, and an end for what somebody has put into a file."""

_ORDER = ("kept", "surpassed", "not credited", "not faster", "wrong", "failed", "out of budget", "pruned", "refused")


def print_plan(report: PlanReport, console: Console, *, verbose: bool = False) -> None:
    """Print a plan. `verbose` adds every check of every candidate."""
    console.print(render_plan(report, verbose=verbose))


def plan_json(report: PlanReport) -> str:
    """The report, indented; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)), indent=2).decode()


def attempts_table(report: PlanReport, *, reasons: bool = True) -> TableBlock:
    """Every candidate, kept ones first.

    Args:
        reasons: with a column that says why.
    """
    columns = [
        TableColumn("name", "text", "candidate"),
        TableColumn("outcome", "text", "outcome"),
        TableColumn("ratio", "text", "against before"),
        *([TableColumn("predicted", "text", "predicted")] if any(a.predicted for a in report.attempts) else []),
        TableColumn("prepare", "time", "prepare"),
        TableColumn("repaid", "text", "repaid after"),
        TableColumn("class", "text", "results"),
        *([TableColumn("reason", "text", "why")] if reasons else []),
    ]
    return TableBlock("What was tried", columns, [_row(attempt) for attempt in _in_order(report)])


def final_table(report: PlanReport) -> TableBlock:
    """All ways to run it, measured in turns; the fastest first."""
    columns = [
        TableColumn("name", "text", "way"),
        TableColumn("median", "time", "median"),
        TableColumn("p20", "time", "20 %"),
        TableColumn("p80", "time", "80 %"),
        TableColumn("samples", "count", "samples"),
    ]
    rows = [
        {
            "name": f"plan: {' + '.join(report.winner)}" if t.name == "plan" and report.winner else t.name,
            "median": t.median_us * 1e3,
            "p20": t.p20_us * 1e3,
            "p80": t.p80_us * 1e3,
            "samples": t.samples,
        }
        for t in sorted(report.final, key=lambda t: t.median_us)
    ]
    return TableBlock("Measured alternately, without a profiler, per call", columns, rows)


def render_plan(report: PlanReport, *, verbose: bool = False) -> RenderableType:
    """The plan as a rich renderable."""
    parts: list[RenderableType] = [Text(clean(plan_sentence(report), 600), style="bold"), Text()]
    if report.attempts:
        parts += [table_renderable(attempts_table(report, reasons=False)), Text()]
    if report.final:
        parts += [table_renderable(final_table(report)), Text()]
    for attempt in _in_order(report):
        parts.append(Text.assemble((clean(attempt.name), "bold"), f": {clean(attempt.what)}"))
        lines = [*([attempt.reason] if attempt.reason else []), *attempt_lines(attempt, checks=verbose)]
        parts += [*[Padding(Text(clean(line, _LONGEST)), (0, 0, 0, 2), expand=False) for line in lines], Text()]
    if report.before_after:
        parts += [Text(f"Before and after, as recorded: {clean(report.before_after, _LONGEST)}"), Text()]
    parts += [Text(clean(note, _LONGEST), style="dim") for note in footer_lines(report)]
    return Group(*parts)


def _in_order(report: PlanReport) -> list[Attempt]:
    return sorted(report.attempts, key=lambda attempt: _ORDER.index(attempt.outcome))


def plan_markdown(report: PlanReport) -> str:
    """The plan as a Markdown section."""
    lines = [f"## {escape(plan_sentence(report), 600)}", ""]
    if report.attempts:
        lines += [*table_markdown(attempts_table(report), longest=_LONGEST), ""]
    if report.final:
        lines += [*table_markdown(final_table(report)), ""]
    lines += [f"- {escape(note, _LONGEST)}" for note in footer_lines(report)]
    return "\n".join(lines).rstrip() + "\n"


def _row(attempt: Attempt) -> dict[str, object]:
    timing = attempt.timing
    return {
        "name": attempt.name,
        "outcome": _outcome(attempt),
        "ratio": f"{_ratio(timing)} ({timing.low:.2f}-{timing.high:.2f})" if timing is not None else "–",
        "predicted": f"{attempt.predicted:.2f}x" if attempt.predicted else "–",
        "prepare": attempt.prepare_s * 1e9 if timing is not None else None,
        "repaid": f"{attempt.repaid_after:,} calls" if attempt.repaid_after else "–",
        "class": attempt.numeric_class or "–",
        "reason": attempt.reason,
    }


def _outcome(attempt: Attempt) -> str:
    """The outcome as a word. `not faster` would contradict a ratio of 3.48x: what did not hold is `not proven`."""
    unproven = attempt.outcome == "not faster" and attempt.timing is not None and attempt.timing.ratio > 1.01
    return "not proven" if unproven else attempt.outcome


def attempt_lines(attempt: Attempt, *, checks: bool = False) -> list[str]:
    """What was seen of a candidate besides its time: in the trace, of memory, by its guards; and by each of its checks."""
    lines = [f"trace: {s.prediction}{'' if s.seen else ' (NOT SEEN)'}: {s.detail}" for s in attempt.shown]
    if attempt.peak_after >= 0:
        before, after = (format_quantity("bytes", value) for value in (attempt.peak_before, attempt.peak_after))
        lines.append(f"peak memory of a call: {before} before, {after} after")
    lines += attempt.notes
    if checks:
        lines += [f"{'✓' if c.passed else '✗'} {c.rule}{f': {c.detail}' if c.detail else ''}" for c in attempt.checks]
    return lines


def footer_lines(report: PlanReport) -> list[str]:
    """Notes, how results were verified, and on which machine."""
    machine = report.machine
    where = machine.get("card") or machine.get("processor") or machine.get("device", "")
    return [
        *report.notes,
        *([f"Results were held against {report.reference}."] if report.reference else []),
        f"{where} · torch {machine.get('torch', '?')} · {_threads(machine.get('threads', '?'))} · "
        f"{report.seconds:.0f} of {report.budget_s:.0f} s spent",
    ]


def _threads(count: object) -> str:
    return "1 thread" if str(count) == "1" else f"{count} threads"


def _ratio(timing: Timing) -> str:
    return f"{timing.ratio:.2f}x"
