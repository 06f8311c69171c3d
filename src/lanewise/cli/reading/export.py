"""`lanewise export`."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.common import cache_option, open_trace, project_settings, step_time_option
from lanewise.cli.outputs import written
from lanewise.errors import UsageError

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["export"]

_ENDINGS = {
    "perfetto": ".perfetto.json.gz",
    "speedscope": ".speedscope.json",
    "html": ".html",
    "parquet": ".parquet",
    "csv": ".csv",
}


@click.command()
@click.argument("source", metavar="TRACE")
@click.option(
    "--to",
    "format_",
    type=click.Choice(list(_ENDINGS)),
    required=True,
    help="perfetto: JSON with lanewise's own tracks; speedscope: the calling-context tree; html: the page; "
    "parquet, csv: one table of columns.",
)
@click.option("--table", default="events", show_default=True, metavar="NAME", help="Which table, for parquet and csv.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Where to; by default into the working directory, named after the trace.",
)
@click.option("--force", is_flag=True, help="Overwrite the output file.")
@step_time_option
@cache_option
def export(
    source: str, format_: str, table: str, output: Path | None, force: bool, step_time: float | None, cache: bool
) -> None:
    """Write a trace for another tool.

    TRACE is a profiler trace (.json or .json.gz), a directory of them (the newest is taken), or - for standard input.
    """
    trace = open_trace(source, cache=cache)
    path = output or Path(_stem(source) + _ENDINGS[format_])
    if path.exists() and not force:
        raise UsageError(f"{path} exists; add --force to overwrite it, or -o for another name")
    try:
        if format_ in _MADE:
            kind, make = _MADE[format_]
            text = written(kind, format_, *make(trace, step_time))
            _write(path, [text] if isinstance(text, str) else text)
        else:
            _columns(trace, table, format_, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(path)


def _explained(trace: Trace, step_time: float | None) -> tuple[Any, ...]:
    from lanewise.diagnose.explain import facts_of, report_of

    facts = facts_of(trace, unprofiled_us=step_time)
    return facts, report_of(facts, project_settings())


def _tree(trace: Trace, step_time: float | None) -> tuple[Any, ...]:
    from lanewise.tree.build import build_tree
    from lanewise.tree.views import top_down

    return (top_down(build_tree(trace)),)


# What a format is an output of, and what that is made of.
_MADE: dict[str, tuple[str, Callable[[Trace, float | None], tuple[Any, ...]]]] = {
    "perfetto": ("trace", _explained),
    "html": ("trace", _explained),
    "speedscope": ("tree", _tree),
}


def _write(path: Path, pieces: Iterable[str]) -> None:
    opened = gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8")
    with opened as file:
        for piece in pieces:
            file.write(piece)


def _columns(trace: Trace, table: str, format_: str, path: Path) -> None:
    from lanewise.trace.schema import TABLES

    if table not in TABLES:
        raise UsageError(f"there is no table {table!r}; there are: {', '.join(TABLES)}")
    getattr(trace.frame(table), f"write_{format_}")(path)


def _stem(source: str) -> str:
    name = "trace" if source == "-" else Path(source).name
    for ending in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name or "trace"
