"""`lanewise chain`."""

from __future__ import annotations

import click

from lanewise.cli.common import cache_option, console, json_option, open_trace, step_row

__all__ = ["chain"]


@click.command()
@click.argument("source", metavar="TRACE")
@click.option(
    "--step", type=int, default=None, metavar="N", help="Number of the step as recorded; default: the last steady one."
)
@click.option(
    "-n", "--limit", metavar="N", type=click.IntRange(min=1), default=200, show_default=True, help="Links shown."
)
@json_option
@cache_option
def chain(source: str, step: int | None, limit: int, as_json: bool, cache: bool) -> None:
    """One step's dispatch chain: annotation, operators, API calls, kernels, with the gap before each link.

    "launch to start" is measured from the start of the call to the start of the kernel.
    """
    from lanewise.measure.facts import Facts
    from lanewise.show.report.chain_table import chain_json, chain_table

    facts = Facts(open_trace(source, cache=cache))
    data = facts.chain(step_row(facts.trace, step))
    if as_json:
        click.echo(chain_json(facts, data))
    else:
        from lanewise.show.report.terminal_table import table_renderable

        console().print(table_renderable(chain_table(facts, data, limit)))
