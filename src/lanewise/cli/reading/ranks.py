"""`lanewise ranks`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from lanewise.cli.common import cache_option, console, json_option, output_option
from lanewise.cli.outputs import deliver

__all__ = ["ranks"]


@click.command()
@click.argument("sources", metavar="TRACE|DIR...", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Rows per table.")
@json_option
@click.option("--format", "format_", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
@cache_option
@output_option
def ranks(
    sources: tuple[str, ...],
    limit: int,
    as_json: bool,
    format_: str,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Several ranks of one job beside each other: which one is late because of its own work, and what it does then.

    Give the traces of all ranks, recorded over the same steps, or their folder. What each rank works on by itself is
    compared with the others, once what recording cost is taken off: who waits in a recording is mostly the profiler's
    doing.
    `lanewise explain TRACE` of the late rank says more about it.
    """
    from lanewise.diagnose.sections.ranks import ranks_section
    from lanewise.measure.distributed.read_ranks import read_ranks
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import Tables, cut_tables

    found = read_ranks(sources, cache=cache)
    section = ranks_section(found, cache=cache)
    form = "json" if as_json else format_
    blocks = cut_tables(section.tables, limit=None if form == "json" else limit)
    told = {"ranks": section.statements}
    tables = Tables(found.files[0], blocks, told)
    printed = partial(print_sections, console(), {"ranks": section}, blocks)
    deliver("tables", form, (tables,), output, force, printed=printed)
