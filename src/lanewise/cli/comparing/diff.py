"""`lanewise diff`."""

from __future__ import annotations

from pathlib import Path

import click

from lanewise.cli.common import cache_option, console, json_option, open_trace, output_option, project_settings
from lanewise.cli.duration import microseconds
from lanewise.cli.outputs import deliver, formats

__all__ = ["diff"]

_ROWS = 20


@click.command()
@click.argument("sides", metavar="A B [C]...", nargs=-1, required=True)
@json_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="md is short enough to paste into a pull request, with -v all of it.",
)
@click.option(
    "--step-time",
    "step_times",
    metavar="TIME",
    type=microseconds,
    multiple=True,
    help="Step time without a profiler (`11.9ms`; microseconds without a unit): once for each side, in their order.",
)
@click.option("--label", "labels", multiple=True, metavar="NAME", help="What to call each side, in their order.")
@click.option("--anyway", is_flag=True, help="Compare even another card, type or size; the output says so.")
@click.option("--contexts", is_flag=True, help="Compare the places of the program as well: modules, frames, operators.")
@click.option("-v", "--verbose", is_flag=True, help="Show every row.")
@cache_option
@output_option
def diff(
    sides: tuple[str, ...],
    as_json: bool,
    format_: str,
    step_times: tuple[float, ...],
    labels: tuple[str, ...],
    anyway: bool,
    contexts: bool,
    verbose: bool,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Say what changed between runs, what did not, and how sure that is. A is the base of every comparison.

    Each side is a trace, or a directory of repeated recordings of one program: with four or more runs per side the
    verdict on the step time knows how much runs differ by themselves. A baseline of `lanewise baseline save`, a report of
    `lanewise explain --json` and a tree of `lanewise tree --to tree` are sides, too. Two folders with the ranks of a job
    each are compared as jobs.
    """
    from lanewise.compare.compare import compare_arms
    from lanewise.compare.diff import arms_of
    from lanewise.errors import UsageError

    if len(sides) < 2:
        raise UsageError("a comparison needs two sides: lanewise diff A B")
    if len(sides) == 2 and not (step_times or contexts) and _jobs(sides, as_json, format_, cache, output, force):
        return
    arms = arms_of(
        sides,
        unprofiled_us=step_times,
        labels=labels,
        read_trace=lambda path: open_trace(path, cache=cache),
        contexts=contexts,
        settings=project_settings(),
    )
    comparison = compare_arms(arms, anyway=anyway)
    form = "json" if as_json else format_

    def printed() -> None:
        from lanewise.show.diff.diff_terminal import print_diff

        print_diff(comparison, console(), verbose=verbose)

    kind = "whole diff" if verbose and form in formats("whole diff") else "diff"
    deliver(kind, form, (comparison,), output, force, printed=printed)


def _jobs(sides: tuple[str, ...], as_json: bool, format_: str, cache: bool, output: Path | None, force: bool) -> bool:
    """Compare two jobs if both sides are folders of one."""
    from functools import partial

    from lanewise.cli.reading.job_in import ranks_in

    found = [ranks_in(side, cache=cache) for side in sides]
    before, after = found
    if before is None or after is None:
        return False
    from lanewise.diagnose.sections.jobs_beside import jobs_section
    from lanewise.diagnose.sections.ranks import told_of_job
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import Tables, cut_tables

    section = jobs_section(told_of_job(before, cache=cache), told_of_job(after, cache=cache))
    form = "json" if as_json else format_
    blocks = cut_tables(section.tables, limit=None if form == "json" else _ROWS)
    tables = Tables(after.files[0], blocks, {"jobs": section.statements})
    deliver(
        "tables", form, (tables,), output, force, printed=partial(print_sections, console(), {"jobs": section}, blocks)
    )
    return True
