"""`lanewise check`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import (
    cache_option,
    console,
    emit,
    json_option,
    open_trace,
    output_option,
    project_settings,
    step_time_option,
)
from lanewise.cli.outputs import deliver

if TYPE_CHECKING:
    from lanewise.compare.budget import BudgetFile
    from lanewise.compare.check import CheckReport
    from lanewise.diagnose.settings import Settings

__all__ = ["check"]


@click.command()
@click.argument("sources", metavar="TRACE...", nargs=-1, required=True)
@click.option(
    "--baseline",
    metavar="FILE",
    default=None,
    help="A baseline file, a trace, or a directory of them; overrides the one that the budgets name.",
)
@click.option(
    "--budget",
    "budget_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="File with the budgets; the nearest lanewise.toml or pyproject.toml by default.",
)
@step_time_option
@click.option(
    "--undecided",
    type=click.Choice(["pass", "fail"]),
    default="pass",
    show_default=True,
    help="Whether a budget that only more runs could decide passes.",
)
@click.option("--github", is_flag=True, help="Annotations on stdout; the step summary if GitHub asks for one.")
@click.option("--sarif", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Also write SARIF.")
@click.option(
    "--benchmark",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also write data for github-action-benchmark (customSmallerIsBetter).",
)
@json_option
@click.option("--format", "format_", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
@cache_option
@output_option
def check(
    sources: tuple[str, ...],
    baseline: str | None,
    budget_file: Path | None,
    step_time: float | None,
    undecided: str,
    github: bool,
    sarif: Path | None,
    benchmark: Path | None,
    as_json: bool,
    format_: str,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Check budgets: exit code 1 if recordings exceed one, 0 if they do not.

    Every TRACE (or directory of them) is one more run of the same program. Budgets stand in [tool.lanewise.budget]; a
    limit on a time is decided by an interval over the runs, never by a mean, and stays undecided where it lies inside.
    """
    from lanewise.compare.budget import find_budget_file, read_budgets
    from lanewise.compare.check import check as decide
    from lanewise.compare.diff import arms_of
    from lanewise.compare.sides.arm import Arm
    from lanewise.errors import UsageError

    path = budget_file or find_budget_file(Path.cwd())
    if path is None:
        raise UsageError("no budgets here or above: add [tool.lanewise.budget] to pyproject.toml (see docs/ci.md)")
    budgets = read_budgets(path)
    settings = project_settings()
    _can_be_found(budgets, settings)

    def opened(sides: list[str], given: float | None) -> list[Arm]:
        times = [given] * len(sides) if given is not None else []
        return arms_of(
            sides, unprofiled_us=times, read_trace=lambda name: open_trace(name, cache=cache), settings=settings
        )

    arms = opened(list(sources), step_time)
    arm = Arm(arms[0].label if len(arms) == 1 else "this", [run for one in arms for run in one.runs])
    source = baseline or budgets.baseline
    old = opened([source], None)[0] if source else None
    report = decide(arm, budgets.budgets, baseline=old, budget_file=budgets.path)
    _also(report, sarif, benchmark, force)
    form = "json" if as_json else format_

    def printed() -> None:
        from lanewise.show.check.check_text import render_check

        if not github:
            console().print(render_check(report))

    deliver("check", form, (report,), output, force, printed=printed)
    if github:
        _to_github(report)
    if not report.passed or (undecided == "fail" and report.undecided):
        sys.exit(1)


def _can_be_found(budgets: BudgetFile, settings: Settings) -> None:
    """UsageError for a forbidden code that the project's settings leave out: that budget could never fail."""
    from lanewise.diagnose.registry import installed_rules
    from lanewise.errors import UsageError

    for code in (code for budget in budgets.budgets if budget.level != "off" for code in budget.codes):
        rules = [rule for rule in installed_rules() if rule.code.startswith(code)]
        if rules and not any(settings.wants(rule) for rule in rules):
            raise UsageError(f"{budgets.path} forbids {code}, which {settings.source} leaves out (select, ignore)")


def _also(report: CheckReport, sarif: Path | None, benchmark: Path | None, force: bool) -> None:
    if sarif is not None:
        from lanewise.show.check.sarif import check_sarif

        emit(check_sarif(report), sarif, force)
    if benchmark is not None:
        from lanewise.show.check.github import benchmark_json

        emit(benchmark_json(report), benchmark, force)


def _to_github(report: CheckReport) -> None:
    from lanewise.errors import UsageError
    from lanewise.show.check.check_text import check_markdown, summary_line
    from lanewise.show.check.github import workflow_commands

    click.echo(workflow_commands(report), nl=False)
    click.echo(summary_line(report))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(check_markdown(report) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write the step summary: {error.strerror or error}") from error
