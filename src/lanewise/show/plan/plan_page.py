"""A plan as a page: what came of it, every candidate with outcome and reason, all ways to run it, and the evidence."""

from __future__ import annotations

from lanewise.fix.model import OUTCOMES, Attempt, PlanReport
from lanewise.report.model import TableBlock, TableColumn
from lanewise.show.page.static_page import lines_html, static_page, table_html
from lanewise.show.plan.plan_text import attempt_lines, attempts_table, final_table, footer_lines, plan_sentence

__all__ = ["plan_html"]


def plan_html(report: PlanReport) -> str:
    """One self-contained page without a script. Raises MissingDependencyError where the page was not built."""
    sections: list[tuple[str, list[str]]] = []
    if report.attempts:
        sections.append(("", [table_html(attempts_table(report), mark="outcome"), _words(report)]))
    if report.final:
        sections.append(("All ways to run it", [table_html(final_table(report))]))
    if report.before_after:
        sections.append(("Before and after, as recorded", [lines_html([report.before_after])]))
    for attempt in report.attempts:
        if attempt.checks or attempt.shown or attempt.notes:
            sections.append((f"{attempt.name}: {attempt.what}", _evidence(attempt)))
    sections.append(("How it was found out", [lines_html(footer_lines(report))]))
    return static_page(plan_sentence(report), f"a plan for {report.subject} ({report.goal})", sections)


def _words(report: PlanReport) -> str:
    """What the outcomes in this plan mean."""
    used = {attempt.outcome for attempt in report.attempts}
    return lines_html(f"{outcome}: {meaning}" for outcome, meaning in OUTCOMES.items() if outcome in used)


def _evidence(attempt: Attempt) -> list[str]:
    parts = [lines_html(attempt_lines(attempt))]
    if attempt.checks:
        columns = [
            TableColumn("rule", "text", "check"),
            TableColumn("passed", "text", "passed"),
            TableColumn("detail", "text", "what was seen"),
        ]
        rows = [
            {"rule": check.rule, "passed": "yes" if check.passed else "no", "detail": check.detail or "–"}
            for check in attempt.checks
        ]
        parts.append(table_html(TableBlock("Checks of its results", columns, rows)))
    return parts
