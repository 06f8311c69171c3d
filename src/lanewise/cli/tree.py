"""`lanewise tree`."""

from __future__ import annotations

import click

from lanewise.cli.common import cache_option, console, json_option, open_trace

__all__ = ["tree"]


@click.command()
@click.argument("source", metavar="TRACE")
@json_option
@cache_option
def tree(source: str, as_json: bool, cache: bool) -> None:
    """Every microsecond of device time at its place in the program."""
    from lanewise.show.tree_terminal import header, tree_rows, tree_text
    from lanewise.tree.build import build
    from lanewise.tree.views import top_down

    shown = top_down(build(open_trace(source, cache=cache)))
    screen = console(width=100)
    screen.print(header(shown))
    screen.print(tree_text(shown, tree_rows(shown)))
