"""`lanewise ranks`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import (
    cache_option,
    console,
    counted,
    json_option,
    output_option,
    price_option,
    project_settings,
)
from lanewise.cli.outputs import deliver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanewise.diagnose.sections.section import Section
    from lanewise.report.model import TableBlock

__all__ = ["ranks"]


@click.command()
@click.argument("sources", metavar="TRACE|DIR...", nargs=-1, required=True)
@click.option(
    "-n", "--limit", metavar="N", type=click.IntRange(min=1), default=10, show_default=True, help="Rows per table."
)
@click.option(
    "--on",
    "way",
    metavar="WHERE",
    default=None,
    help="What reads the traces: processes (this machine, the default), ray or dask; ray=ADDRESS and dask=ADDRESS for a "
    "cluster that runs already.",
)
@click.option(
    "--findings/--no-findings",
    default=True,
    show_default=True,
    help="Also explain each rank (of a large job, a sample): which finding occurs on how many.",
)
@price_option
@json_option
@click.option("--format", "format_", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
@cache_option
@output_option
def ranks(
    sources: tuple[str, ...],
    limit: int,
    way: str | None,
    findings: bool,
    price: float | None,
    as_json: bool,
    format_: str,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Compare the ranks of one job: which one is late because of its own work, and what it does in that time.

    Give the traces of all ranks, recorded over the same steps, or their folder. What each rank works on by itself is
    compared with the others, once what recording cost is taken off: who waits in a recording is mostly the profiler's
    doing.
    `lanewise explain TRACE` of the late rank says more about it. Of a job that hangs, give the dumps of torch's flight
    recorder: who is missing in which collective.
    """
    from lanewise.diagnose.sections.hang import hang_section
    from lanewise.errors import LanewiseError
    from lanewise.measure.distributed.gathering.flight_dumps import flight_dumps
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import Tables, cut_tables

    sections: dict[str, Section] = {}
    source = sources[0]
    dumps, unreadable, others = flight_dumps(sources)
    if dumps or unreadable:
        sections["hang"] = hang_section(dumps, unreadable)
    try:
        if others or not sections:
            source, sections["ranks"] = _ranks_section(
                others or sources, way, findings=findings, price=price, cache=cache
            )
    except LanewiseError:
        if not sections:
            raise
    form = "json" if as_json else format_
    blocks: dict[str, TableBlock] = {}
    for section in sections.values():
        blocks |= cut_tables(section.tables, limit=None if form == "json" else limit)
    told = {name: section.statements for name, section in sections.items()}
    printed = partial(print_sections, console(), sections, blocks)
    deliver("tables", form, (Tables(source, blocks, told),), output, force, printed=printed)


def _ranks_section(
    sources: Sequence[str], way: str | None, *, findings: bool, price: float | None, cache: bool
) -> tuple[str, Section]:
    """Name of the first trace, and what the ranks say together."""
    from lanewise.diagnose.sections.ranks import Explained, told_of_job
    from lanewise.measure.distributed.gathering.executor import executor_for
    from lanewise.measure.distributed.gathering.read_ranks import read_ranks

    executor = executor_for(way or "processes")
    settings = project_settings(price=price)
    explained = Explained(settings, executor) if findings else None
    with counted("ranks read") as progress:
        found = read_ranks(sources, cache=cache, executor=executor if way else None, progress=progress)
    told = told_of_job(found, cache=cache, explained=explained, replayed=True, price=settings.price)
    return found.files[0], told.section
