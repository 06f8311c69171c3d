"""`lanewise table`."""

from __future__ import annotations

from pathlib import Path

import click

from lanewise.cli.common import cache_option, console, emit, json_option, open_trace, output_option

__all__ = ["table"]

_TABLES = ("operators", "kernels", "api", "copies", "steps")


@click.command()
@click.argument("source", metavar="TRACE")
@click.argument("which", type=click.Choice([*_TABLES, "all"]), default="all")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows per table.")
@click.option("--sort", metavar="COLUMN", default=None, help="Sort by this column, largest first.")
@json_option
@click.option("--format", "format_", type=click.Choice(["text", "md", "csv", "json"]), default="text")
@cache_option
@output_option
def table(
    source: str,
    which: str,
    limit: int,
    sort: str | None,
    as_json: bool,
    format_: str,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Operators, kernels, API calls and copies: count, total, mean, median, min, max, standard deviation.

    Device totals come from kernels, copies and sets alone; the synchronise that the profiler itself adds at the end is
    in the API table only. Work launched before the recording is in the kernel table, but in no operator.
    """
    from lanewise.errors import UsageError
    from lanewise.measure.facts import Facts
    from lanewise.show.tables import profiler_tables, tables_csv, tables_json, tables_markdown

    wanted = _TABLES if which == "all" else (which,)
    facts = Facts(open_trace(source, cache=cache))
    everything = as_json or format_ in {"json", "csv"}
    blocks = profiler_tables(facts, wanted, limit=None if everything else limit, sort=sort)
    if sort is not None and not blocks:
        raise UsageError(f"no table has a column {sort!r}")
    if as_json or format_ == "json":
        emit(tables_json(blocks, facts.trace.reading.source), output, force)
    elif format_ == "csv":
        if len(wanted) != 1:
            raise UsageError("csv holds one table: name it, for example `lanewise table TRACE kernels --format csv`")
        emit(tables_csv(blocks), output, force)
    elif format_ == "md":
        emit(tables_markdown(blocks), output, force)
    else:
        from lanewise.show.terminal import table_renderable

        if output is not None:
            raise UsageError("-o writes data: add --format md, csv or json")
        screen = console()
        for block in blocks.values():
            screen.print(table_renderable(block, width=screen.width), end="\n\n")
