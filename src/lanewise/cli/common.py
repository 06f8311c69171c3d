"""What several verbs share: opening a trace with a progress bar, printing, writing without overwriting."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from lanewise.cli.duration import microseconds
from lanewise.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from rich.console import Console

    from lanewise.diagnose.settings import Settings
    from lanewise.measure.facts import Facts
    from lanewise.trace.model import Trace
    from lanewise.tree.model import Tree

__all__ = [
    "STDOUT",
    "cache_option",
    "check_output",
    "console",
    "counted",
    "emit",
    "json_option",
    "open_fleet",
    "open_ranks",
    "open_trace",
    "output_option",
    "price_option",
    "print_or_write",
    "project_settings",
    "samples_option",
    "step_row",
    "step_time_option",
]

_PROGRESS_AFTER_S = 1.0
_WIDTH, _NARROWEST = 100, 20


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


def price_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--price`."""
    return click.option(
        "--price",
        metavar="DOLLARS",
        type=click.FloatRange(0),
        help="Price of an hour of what runs the steps: says what a step costs, and what each gain would save.  "
        "[default: the project's]",
    )(command)


def samples_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--samples`."""
    return click.option(
        "--samples",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=None,
        metavar="FILE",
        help="Also what `lanewise run --sample` of the same program has seen inside of its kernels: their loops, lines and "
        "waits.",
    )(command)


def step_time_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--step-time`."""
    return click.option(
        "--step-time",
        metavar="TIME",
        type=microseconds,
        default=None,
        help="Step time without a profiler, if you measured it (`11.9ms`; microseconds without a unit): host times in a "
        "trace are inflated. Traces that lanewise recorded carry it.",
    )(command)


def project_settings(
    select: Sequence[str] = (), ignore: Sequence[str] = (), *, start: Path | None = None, price: float | None = None
) -> Settings:
    """What every verb that explains obeys: the settings of the project, under what its command line asks for."""
    from dataclasses import replace

    from lanewise.diagnose.settings import load_settings, narrowed

    settings = narrowed(load_settings(start=start), select, ignore)
    return settings if price is None else replace(settings, price=price)


def open_trace(source: str, *, cache: bool) -> Trace:
    """Read a trace, with a progress bar on a terminal once it takes more than a second.

    Raises:
        InputError: it cannot be read, or nothing was recorded in it.
    """
    from lanewise.trace.reader import read_recorded

    with _progress() as progress:
        return read_recorded(source, cache=cache, progress=progress)


def open_ranks(sources: Sequence[str], *, cache: bool, step_time: float | None = None) -> Facts:
    """The first trace, with all others as ranks of the same job; a directory stands for all traces in it.

    Raises:
        UsageError: fewer than two traces, the same one twice, or nothing in common.
    """
    from lanewise.diagnose.explain import facts_of
    from lanewise.measure.distributed.job import job_of
    from lanewise.trace.file.source import resolve

    names: list[str] = []
    for source in sources:
        for found in resolve(source, every=True):
            name = str(found.path or found.name)
            if name not in names:
                names.append(name)
    if len(names) < 2:
        raise UsageError("ranks are compared with each other: give the traces of two or more, or their folder")
    first, *others = names
    mine = facts_of(open_trace(first, cache=cache), unprofiled_us=step_time)
    return job_of([mine, *(facts_of(open_trace(name, cache=cache)) for name in others)])


def open_fleet(sources: Sequence[str], way: str | None = None) -> tuple[Tree, int]:
    """The sum of tree files, and of those in folders; how many there are. Those that cannot be read are named.

    Raises:
        UsageError: a source that is no tree. InputError: a single file, or none of all, can be read, or all are empty.
    """
    from lanewise.measure.distributed.gathering.executor import executor_for
    from lanewise.tree.fleet import collected, merge_fleet, trees_below
    from lanewise.tree.tree_file import is_tree

    paths: list[Path] = []
    for source in sources:
        inside = trees_below(source) if Path(source).is_dir() else [Path(source)] if is_tree(source) else []
        if not inside:
            raise UsageError(f"{source} is no tree, and holds none: explain trees and traces apart")
        paths += inside
    paths = list(dict.fromkeys(paths))
    with counted("trees read") as progress:
        fleet = merge_fleet(paths, executor_for(way) if way else None, progress=progress)
    if fleet.unreadable:
        more = f" and {len(fleet.unreadable) - 1} more" if len(fleet.unreadable) > 1 else ""
        click.echo(
            f"lanewise: {fleet.files:,} of {len(paths):,} trees are read; left out: {fleet.unreadable[0][1]}{more}",
            err=True,
        )
    return collected(fleet.tree, str(paths[0])), len(paths)


def step_row(trace: Trace, number: int | None) -> int | None:
    """Row of the step with a number; None for None. UsageError, with the steps there are, for one that is not there."""
    if number is None:
        return None
    steps = trace.steps
    numbers = steps.number.tolist() if steps.recorded else []
    if number not in numbers:
        have = ", ".join(str(n) for n in numbers[:20]) or "none"
        raise UsageError(f"the trace has no step {number}; steps: {have}")
    return numbers.index(number)


@contextmanager
def counted(what: str) -> Generator[Callable[[int, int], None] | None]:
    """A line on a terminal that counts, once it takes more than a second: "ranks read 12 of 64"."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown = False

    def advance(done: int, total: int) -> None:
        nonlocal shown
        if shown or time.monotonic() - started >= _PROGRESS_AFTER_S:
            shown = True
            click.echo(f"\r{what} {done:,} of {total:,}", nl=False, err=True)

    try:
        yield advance
    finally:
        if shown:
            click.echo("\r\x1b[2K", nl=False, err=True)


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


def console(file: IO[str] | None = None) -> Console:
    """A console on stdout, or on a file; plain text where that is no terminal or NO_COLOR is set.

    As wide as COLUMNS says, else as the terminal, else 100 characters.
    """
    from rich.console import Console

    width = max(shutil.get_terminal_size((_WIDTH, 24)).columns, _NARROWEST)
    return Console(file=file, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def print_or_write(printed: Callable[[Console], None], output: Path | None, force: bool) -> None:
    """What is printed on a console, on the terminal or in a file. Raises as `emit` does."""
    if output is None:
        printed(console())
        return
    buffer = StringIO()
    printed(console(buffer))
    emit(buffer.getvalue(), output, force)


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


def emit(data: str | bytes, output: Path | None, force: bool) -> None:
    """Print data, or write it to a file that does not exist yet; `-` is the terminal, too.

    Raises:
        UsageError: the file exists or cannot be written; or the data is binary, and the terminal would show it.
    """
    if output is None or output == STDOUT:
        if isinstance(data, str):
            click.echo(data.rstrip("\n"))
        elif sys.stdout.isatty():
            raise UsageError("this format is binary: add -o FILE")
        else:
            sys.stdout.buffer.write(data)
        return
    check_output(output, force)
    try:
        output.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
