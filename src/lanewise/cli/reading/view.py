"""`lanewise view`."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import (
    STDOUT,
    cache_option,
    check_output,
    emit,
    open_trace,
    output_option,
    project_settings,
    samples_option,
    step_time_option,
)

if TYPE_CHECKING:
    from lanewise.diagnose.settings import Settings
    from lanewise.measure.facts import Facts
    from lanewise.report.model import Report
    from lanewise.show.diff.diff_page import Base
    from lanewise.tree.inside_kernels import Inside

__all__ = ["view"]


@click.command()
@click.argument("source", metavar="TRACE")
@click.option(
    "--baseline",
    metavar="TRACE",
    default=None,
    help="An earlier run: the page also shows what changed since, with both timelines.",
)
@click.option(
    "--source",
    "sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Folder of the program: the page then holds the lines of its .py files around each call. Whoever gets the "
    "page can read them. Without this option a page holds no source.",
)
@click.option(
    "--max-slices",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Slices inside one page. A file leaves out the shortest ones above that, and says so; a server lets "
    "the page ask for what is on screen instead.",
)
@click.option("--perfetto", is_flag=True, help="Open the trace in the Perfetto UI, with lanewise's own tracks added.")
@click.option(
    "--browser/--no-browser", default=True, show_default=True, help="Open a browser, or only print the address."
)
@samples_option
@step_time_option
@cache_option
@output_option
def view(
    source: str,
    baseline: str | None,
    sources: Path | None,
    max_slices: int | None,
    perfetto: bool,
    browser: bool,
    samples: Path | None,
    step_time: float | None,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Show a trace and what is wrong with it on a page: in the browser, or with -o in one file to send.

    TRACE is a profiler trace (.json or .json.gz), a directory of them (the newest is taken; of a job of several ranks
    all of them are shown, each a click away), or - for standard input.
    """
    from lanewise.diagnose.explain import facts_of, report_of

    settings = project_settings()
    if samples is not None and (perfetto or baseline is not None):
        from lanewise.errors import UsageError

        raise UsageError("--samples go with neither --perfetto nor --baseline")
    if (
        not perfetto
        and baseline is None
        and samples is None
        and _show_job(source, settings, browser, output, cache=cache, force=force)
    ):
        return
    if perfetto:
        facts = facts_of(open_trace(source, cache=cache), unprofiled_us=step_time)
        _perfetto(facts, report_of(facts, settings), browser)
        return
    from lanewise.show.diff.diff_page import diff_html
    from lanewise.show.page.html import bundle, report_html
    from lanewise.show.page.server import PageServer
    from lanewise.show.page.timeline import MAX_SLICES

    # Fail before reading a large trace.
    bundle()
    if output is not None:
        check_output(output, force)
    facts = facts_of(open_trace(source, cache=cache), unprofiled_us=step_time)
    report, most = report_of(facts, settings), max_slices or MAX_SLICES
    insides: Mapping[str, Inside] = {}
    if samples is not None:
        report, insides = _sampled(facts, report, samples)
    base = _base(facts_of(open_trace(baseline, cache=cache)), facts, report, settings) if baseline is not None else None
    if output is None:
        server = PageServer(facts, report, max_slices=most, sources=sources, base=base, insides=insides)
        _serve(server.address, server.address, browser, server.serve)
        return
    text = (
        report_html(facts, report, max_slices=most, sources=sources, insides=insides)
        if base is None
        else diff_html(facts, report, base, max_slices=most, sources=sources)
    )
    emit(text, output, force)
    if output != STDOUT:
        click.echo(f"wrote {output} ({output.stat().st_size / 1e6:,.1f} MB)", err=True)


def _show_job(source: str, settings: Settings, browser: bool, output: Path | None, *, cache: bool, force: bool) -> bool:
    """Show the ranks of a job if the source is a folder of one."""
    from lanewise.cli.reading.job_in import job_server, ranks_in, write_job_pages
    from lanewise.show.page.html import bundle

    found = ranks_in(source, cache=cache)
    if found is None:
        return False
    from lanewise.diagnose.sections.ranks import Explained, told_of_job
    from lanewise.measure.distributed.gathering.executor import executor_for
    from lanewise.show.page.job_page import job_html

    # Fail before explaining many.
    bundle()
    if output is not None:
        check_output(output, force)
    told = told_of_job(
        found, cache=cache, explained=Explained(settings, executor_for("processes")), price=settings.price
    )
    if output == STDOUT:
        emit(job_html(told, source, {}), output, force)
        return True
    if output is not None:
        write_job_pages(found, told, source, output, settings, cache=cache, force=force)
        return True
    server = job_server(found, told, source, settings, cache=cache)
    _serve(server.address, server.address, browser, server.serve)
    return True


def _sampled(facts: Facts, report: Report, samples: Path) -> tuple[Report, Mapping[str, Inside]]:
    """The report with what was sampled inside of kernels, and their parts."""
    from lanewise.diagnose.sampled_kernels import inside_statements, kernel_times, stalls_in, with_inside
    from lanewise.machine_code.sampled.parts import parts_of

    stalls = stalls_in(samples)
    inside = inside_statements(kernel_times(facts), stalls, facts.device.peak)
    return with_inside(report, inside, samples.name), parts_of(stalls)


def _base(earlier: Facts, facts: Facts, report: Report, settings: Settings) -> Base:
    from lanewise.compare.diff import diff_explained
    from lanewise.diagnose.explain import report_of
    from lanewise.show.diff.diff_page import Base

    before = report_of(earlier, settings)
    return Base(earlier, before, diff_explained([("before", earlier, before), ("after", facts, report)]))


def _perfetto(facts: Facts, report: Report, browser: bool) -> None:
    from lanewise.show.export.perfetto_server import PerfettoServer

    server = PerfettoServer(facts, report)
    _serve(server.deep_link, server.address, browser, server.serve)


def _serve(link: str, address: str, browser: bool, serve: Callable[[], None]) -> None:
    try:
        click.echo(link)
        click.echo(f"serving {address} until Ctrl-C", err=True)
        if browser:
            webbrowser.open(link)
        serve()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
