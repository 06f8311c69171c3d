"""`lanewise sql`."""

from __future__ import annotations

import click

from lanewise.cli.common import cache_option, json_option, open_trace

__all__ = ["sql"]


@click.command()
@click.argument("source", metavar="TRACE")
@click.argument("query", required=False)
@click.option(
    "-n", "--limit", metavar="N", type=click.IntRange(min=1), default=100, show_default=True, help="Rows printed."
)
@click.option("--format", "format_", type=click.Choice(["text", "csv", "json"]), default="text", show_default=True)
@json_option
@cache_option
def sql(source: str, query: str | None, limit: int, format_: str, as_json: bool, cache: bool) -> None:
    """Query the columns of a trace in SQL; without a query, list the tables.

    \b
    lanewise sql trace.json "select name, count(*), sum(duration)/1e3 as us
                             from events where kind = 'kernel' group by name order by us desc"
    """
    from lanewise.show.export.sql import run_query, schema_text

    if query is None:
        click.echo(schema_text())
        return
    click.echo(run_query(open_trace(source, cache=cache), query, limit, "json" if as_json else format_))
