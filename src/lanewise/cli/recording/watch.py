"""`lanewise watch`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lanewise.cli.recording.run import RunCommand, program_here
from lanewise.errors import UsageError

if TYPE_CHECKING:
    from lanewise.capture.script import Program

__all__ = ["watch"]


def _installed(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from lanewise.cli.recording.watch_asked import install_hook

        _told(ctx, install_hook)


def _removed(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from lanewise.cli.recording.watch_asked import remove_hook

        _told(ctx, remove_hook)


def _share(_: click.Context, __: click.Parameter, text: str | None) -> float:
    from lanewise.cli.recording.watch_asked import read_share

    try:
        return read_share(text) if text is not None else 0.0
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no share of the run's time between 0.1% and 50%: 1%, for example"
        ) from None


def _told(ctx: click.Context, change: Callable[[], str]) -> NoReturn:
    """Change the hook, say what was done, and end."""
    from lanewise.cli.recording.watch_asked import hook_file

    try:
        click.echo(change())
    except OSError as error:
        raise UsageError(f"cannot change {hook_file()}: {error.strerror or error}") from error
    ctx.exit()


@click.command(cls=RunCommand, options_metavar="[OPTIONS] [-m MODULE | -c CODE | SCRIPT] [ARGS]...")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="File for the tree.  [default: the script's name with .lw]",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file; by default a number is put into the name.")
@click.option("--every", metavar="N", type=click.IntRange(1), help="Watch only K of every N steps: see --steps.")
@click.option("--steps", metavar="K", type=click.IntRange(1), default=1, show_default=True, help="The K of --every.")
@click.option(
    "--budget",
    metavar="SHARE",
    callback=_share,
    help="Share of the run's time that watching may cost, such as 1%: it watches as often as that allows.",
)
@click.option("--frames/--no-frames", default=True, show_default=True, help="Collect Python frames and modules.")
@click.option(
    "--device/--no-device", default=True, show_default=True, help="Collect kernels, copies and sets of a CUDA device."
)
@click.option("--lines", is_flag=True, help="Keep calls from different lines of a function apart.")
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="Leave 20 of the early steps unwatched, in turns, to measure what watching costs.",
)
@click.option(
    "--alerts/--no-alerts",
    default=True,
    show_default=True,
    help="Follow what each place takes, and say when one becomes slower.",
)
@click.option(
    "--way",
    type=click.Choice(["auto", "native", "windows"]),
    default="auto",
    show_default=True,
    help="The native collector, or short windows of torch's profiler.",
)
@click.option(
    "--step-on", metavar="FN", help="A step begins when this function of the script (or module:function) is called."
)
@click.option(
    "--save-every",
    metavar="S",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds between two writes of the file, more if writing takes long; 0: only at the end.",
)
@click.option(
    "--baseline",
    metavar="TREE",
    type=click.Path(exists=True, path_type=Path),
    help="Tree of an earlier run, or a folder of them: say which places take longer than they did there.",
)
@click.option(
    "--rotate",
    metavar="S",
    type=click.FloatRange(0),
    default=0.0,
    help="Every S seconds, write what happened since the last time to NAME-periods/NAME-DATE-TIME.lw, too.",
)
@click.option(
    "--rotate-keep",
    metavar="K",
    type=click.IntRange(1),
    default=48,
    show_default=True,
    help="Files of --rotate to keep: older ones of this program are deleted.",
)
@click.option(
    "--record-signal",
    metavar="SIGNAL",
    type=click.Choice(["USR1", "USR2"], case_sensitive=False),
    help="On this signal the next steps are recorded in full, as by lanewise run; the program goes on.",
)
@click.option(
    "--record-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="The same on POST /record?steps=20 to this port of 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--record-steps",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Steps of such a recording.",
)
@click.option(
    "--record-keep",
    metavar="K",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Such recordings to keep: older ones of this program are deleted.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing of our own.")
@click.option(
    "--install-hook",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_installed,
    help="Have this Python watch every program that is started with LANEWISE_WATCH=FILE; then end.",
)
@click.option(
    "--remove-hook",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_removed,
    help="Undo that; then end.",
)
@click.pass_context
def watch(ctx: click.Context, **given: Any) -> None:
    """Run a program unchanged and collect its calling-context tree for as long as it runs.

    The tree joins Python frames, modules, operators and backward functions, is small however long the program runs,
    and is read by lanewise tree. The program's arguments, output and exit code are its own.
    """
    _watch(program_here(ctx.meta["program"], "watch"), given)


def _watch(program: Program, given: dict[str, Any]) -> NoReturn:
    from lanewise.capture.file.save import free_path, rank_suffix
    from lanewise.capture.say import say
    from lanewise.capture.script import become

    if given["budget"] and given["every"]:
        raise UsageError("--budget chooses how often to watch: leave out --every")
    asked: Path = given["out"] or Path(f"{program.name}{rank_suffix(os.environ)}.lw")
    if not asked.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {asked.parent} for the file")
    out = asked if given["force"] else free_path(asked.parent, asked.stem, asked.suffix)
    if out != asked and not given["quiet"]:
        say(f"{asked} exists, so the tree goes to {out}; --force overwrites")
    names = (
        "steps", "budget", "frames", "device", "lines", "measure", "alerts", "way", "step_on", "save_every",
        "rotate", "rotate_keep", "record_port", "record_steps", "record_keep",
    )  # fmt: skip
    options = {name: given[name] for name in names} | {
        "every": given["every"] or 0,
        "baseline": str(given["baseline"] or ""),
        "record_signal": given["record_signal"] or "",
        "source": program.name,
    }
    order = {"out": str(out), "quiet": given["quiet"], "options": options}
    become(program, "lanewise.cli.recording.watched", order)
