"""`lanewise mcp`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["mcp"]


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the project: relative paths begin there, and only below it sources are shown.  [default: here]",
)
def mcp(root: Path) -> None:
    """Answer an assistant's questions about recordings, by the Model Context Protocol on standard input and output.

    For an assistant to start, not for a terminal: docs/assistants.md says how. It reads traces that are files on this
    machine, shows source lines only below --root, and runs nothing. Needs pip install 'lanewise[mcp]'.
    """
    from lanewise.assistant.protocol import serve

    if sys.stdin.isatty():
        click.echo("Waiting for an assistant on standard input; docs/assistants.md says how one starts this.", err=True)
    serve(root)
