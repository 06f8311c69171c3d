"""`lanewise explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import (
    cache_option,
    console,
    emit,
    json_option,
    open_fleet,
    open_ranks,
    open_trace,
    output_option,
    price_option,
    print_or_write,
    project_settings,
    samples_option,
    step_time_option,
)
from lanewise.cli.outputs import formats, written

if TYPE_CHECKING:
    from lanewise.diagnose.settings import Settings
    from lanewise.report.model import Report, TextBlock

__all__ = ["explain"]


@click.command()
@click.argument("sources", metavar="TRACE [RANK]...", nargs=-1, required=True)
@json_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json", "sarif"]),
    default="text",
    show_default=True,
    help="md is short enough to paste into an issue or an assistant, with --full all of it; sarif is for code scanning "
    "and editors.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="CODE",
    help="Only rules whose code starts with this (repeatable); the project's own choice no longer counts.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODE", help="Leave out rules whose code starts with this (repeatable)."
)
@click.option("--full", is_flag=True, help="The whole report, not only its first screen: as into a file.")
@click.option("-v", "--verbose", is_flag=True, help="The same, with every check that found nothing, and why.")
@samples_option
@step_time_option
@price_option
@cache_option
@output_option
def explain(
    sources: tuple[str, ...],
    as_json: bool,
    format_: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    full: bool,
    verbose: bool,
    samples: Path | None,
    step_time: float | None,
    price: float | None,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Say what a trace is bound by, what dominates, and what to look at first.

    TRACE is a profiler trace (.json or .json.gz), a directory of them (the newest is taken; of a job of several ranks the
    late rank, or else the first), or - for standard input.
    Further traces are those of the other ranks of the same job, recorded over the same steps: they tell waiting for a
    late rank from moving data. A tree of lanewise watch is explained as well, several of them or a folder of them as
    their sum: it has sums and no timeline, so that gains are bounds.
    """
    from msgspec.structs import replace

    from lanewise.diagnose.explain import explain as explain_trace
    from lanewise.diagnose.explain import facts_of, report_of
    from lanewise.diagnose.report_cache import explained
    from lanewise.errors import UsageError
    from lanewise.report.model import Note
    from lanewise.tree.fleet import holds_trees

    settings = project_settings(select, ignore, price=price)
    source, *others = sources
    if any(holds_trees(each) for each in sources):
        tree_report, inside = _of_trees(sources, settings, step_time, samples)
        _show(tree_report, inside, as_json, format_, full, verbose, output, force)
        return
    source, said = (source, "") if others else _of_a_job(source, cache)
    inside: list[TextBlock] = []
    if samples is not None:
        from lanewise.diagnose.sampled_kernels import inside_statements, kernel_times, stalls_in, with_inside

        if others:
            raise UsageError("--samples are of one process: name one trace")
        facts = facts_of(open_trace(source, cache=cache), unprofiled_us=step_time)
        inside = inside_statements(kernel_times(facts), stalls_in(samples), facts.device.peak)
        report = with_inside(report_of(facts, settings), inside, samples.name)
    elif others:
        report = report_of(open_ranks(sources, cache=cache, step_time=step_time), settings)
    elif cache:
        report = explained(source, settings, step_time, opened=lambda name: open_trace(name, cache=True))
    else:
        report = explain_trace(open_trace(source, cache=False), unprofiled_us=step_time, settings=settings)
    if said:
        click.echo(f"lanewise: {said}", err=True)
        report = replace(report, health=[*report.health, Note("info", "ranks", said)])
    _show(report, inside, as_json, format_, full, verbose, output, force)


_MOST_RANKS = 16
"""Ranks that are compared to find the one to explain; of a larger job the newest trace is taken."""


def _of_a_job(source: str, cache: bool) -> tuple[str, str]:
    """What to explain of a folder that holds several ranks of one job, and what to say about that; else the source."""
    from lanewise.cli.reading.job_in import ranks_in, world_of
    from lanewise.errors import LanewiseError

    world, newest = world_of(source)
    if world < 2:
        return source, ""
    compare = f"`lanewise ranks {source}` compares them"
    if world > _MOST_RANKS:
        name = Path(newest).name
        return newest, f"{source} is of a job of {world:,} ranks: {name} is explained; {compare}"
    found = ranks_in(source, cache=cache)
    if found is None:
        return newest, ""
    from lanewise.diagnose.sections.ranks import told_of_job  # here, because a single rank needs none of it

    try:
        told = told_of_job(found, cache=cache)
    except LanewiseError:  # of several jobs
        return newest, ""
    rank = found.ranks[told.look_at].rank
    which = f"rank {rank}, the late one," if told.is_late else f"none is late, and rank {rank}"
    return found.files[
        told.look_at
    ], f"{source} holds {len(found.ranks)} ranks of one job: {which} is explained; {compare}"


def _of_trees(
    sources: tuple[str, ...], settings: Settings, step_time: float | None, samples: Path | None
) -> tuple[Report, list[TextBlock]]:
    """The report on the sum of some trees, and what was sampled inside of its kernels. UsageError where a trace stands
    among them."""
    from lanewise.diagnose.of_tree.explain_tree import explain_tree
    from lanewise.diagnose.sampled_kernels import inside_statements, kernel_times_of_tree, stalls_in, with_inside
    from lanewise.errors import UsageError

    if step_time is not None:
        raise UsageError("--step-time speaks of a trace: a tree of lanewise watch measures what watching costs itself")
    tree, files = open_fleet(sources)
    path = sources[0] if len(sources) == 1 else f"{files} trees"
    size = Path(path).stat().st_size if files == 1 and Path(path).is_file() else 0
    report = explain_tree(tree, path=path, size=size, settings=settings)
    if samples is None:
        return report, []
    inside = inside_statements(kernel_times_of_tree(tree), stalls_in(samples), None)
    return with_inside(report, inside, samples.name), inside


def _show(
    report: Report,
    inside: list[TextBlock],
    as_json: bool,
    format_: str,
    full: bool,
    verbose: bool,
    output: Path | None,
    force: bool,
) -> None:
    form = "json" if as_json else format_
    if form in formats("report"):
        whole = (full or verbose) and form in formats("whole report")
        emit(written("whole report" if whole else "report", form, report), output, force)
    elif full or verbose or output is not None:
        from lanewise.show.report.terminal import print_report

        print_or_write(lambda terminal: print_report(report, terminal, verbose=verbose), output, force)
    else:
        from lanewise.show.report.one_screen import print_one_screen
        from lanewise.show.report.terminal import inside_block

        screen = console()
        print_one_screen(report, screen)
        if inside:
            screen.print(inside_block(inside))
