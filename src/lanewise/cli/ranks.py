"""`lanewise ranks`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from lanewise.cli.common import cache_option, console, json_option, open_ranks, output_option, project_settings
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
    """Several ranks of one job beside each other: who comes last to the collectives, and who waits for it.

    Give the traces of all ranks, recorded over the same steps, or their folder. The k-th collective of a group with equal
    name, type and size is the same one on every rank; its transfer takes the shortest of the ranks' durations, the rest of
    a rank's duration is waiting. `lanewise explain RANK0 RANK1...` explains one rank with what the others tell about it.
    """
    from lanewise.diagnose.sections.job_diagnoses import finding_sentences
    from lanewise.diagnose.sections.ranks import ranks_section
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import Tables, cut_tables

    settings = project_settings()
    job = open_ranks(sources, cache=cache)
    section = ranks_section(job)
    section = section._replace(statements=[*section.statements, *finding_sentences(job, settings)])
    form = "json" if as_json else format_
    blocks = cut_tables(section.tables, limit=None if form == "json" else limit)
    told = {"ranks": section.statements}
    tables = Tables(job.trace.reading.source, blocks, told)
    printed = partial(print_sections, console(), {"ranks": section}, blocks)
    deliver("tables", form, (tables,), output, force, printed=printed)
