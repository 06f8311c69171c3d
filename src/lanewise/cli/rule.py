"""`lanewise rule`."""

from __future__ import annotations

import sys

import click

from lanewise.cli.common import console, json_option

__all__ = ["rule"]


@click.command()
@click.argument("code", required=False)
@json_option
def rule(code: str | None, as_json: bool) -> None:
    """Explain a diagnosis: what it means, why it costs, how to fix and verify it, when it stays silent."""
    from lanewise.show.report.rule_pages import rule_json, rule_list, rule_text

    if as_json:
        click.echo(rule_json(code))
    elif code is None:
        # One a line for what searches it.
        click.echo(rule_list(console().width if sys.stdout.isatty() else None))
    else:
        click.echo(rule_text(code, console().width))
