"""What several verbs share: opening a trace with a progress bar, printing, writing without overwriting."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console

    from lanewise.trace.model import Trace

__all__ = [
    "STDOUT",
    "cache_option",
    "check_output",
    "console",
    "emit",
    "json_option",
    "open_trace",
    "output_option",
    "step_time_option",
]

_PROGRESS_AFTER_S = 1.0


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the versioned data instead of text.")(command)


def cache_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--no-cache`."""
    return click.option(
        "--cache/--no-cache",
        default=True,
        show_default=True,
        help="Keep a parsed copy, so that opening the same trace again is fast.",
    )(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-o` and `--force`."""
    command = click.option("--force", is_flag=True, help="Overwrite the output file.")(command)
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        help="Write to a file instead of the terminal.",
    )(command)


def step_time_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--step-time`."""
    return click.option(
        "--step-time",
        metavar="US",
        type=click.FloatRange(min=0, min_open=True),
        default=None,
        help="Step time without a profiler, in microseconds, if you measured it: host times in a trace "
        "are inflated. Traces that lanewise recorded carry it.",
    )(command)


def open_trace(source: str, *, cache: bool) -> Trace:
    """Read a trace, with a progress bar on a terminal once it takes more than a second."""
    from lanewise.trace.reader import read

    with _progress() as progress:
        return read(source, cache=cache, progress=progress)


@contextmanager
def _progress() -> Generator[Callable[[int, int | None], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bar: Any = None
    task: Any = None

    def advance(done: int, total: int | None) -> None:
        nonlocal bar, task
        if bar is None:
            if time.monotonic() - started < _PROGRESS_AFTER_S:
                return
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            bar = Progress(
                TextColumn("reading"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            task = bar.add_task("reading", total=total)
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def console(*, width: int | None = None) -> Console:
    """A console on stdout; plain text where stdout is no terminal or NO_COLOR is set."""
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = 110
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


STDOUT = Path("-")


def check_output(output: Path, force: bool) -> None:
    """Fail where `emit` would, before the work that makes the text.

    Raises:
        UsageError: the file exists, or its folder does not.
    """
    if output == STDOUT:
        return
    if output.exists() and not force:
        raise UsageError(f"{output} exists; add --force to overwrite it")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")


def emit(text: str, output: Path | None, force: bool) -> None:
    """Print data, or write it to a file that does not exist yet; `-` is the terminal, too."""
    if output is None or output == STDOUT:
        click.echo(text.rstrip("\n"))
        return
    check_output(output, force)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
