"""`lanewise sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lanewise.cli.common import emit, json_option, output_option, print_or_write
from lanewise.cli.recording.run import RunCommand, need_torch, program_of
from lanewise.errors import UsageError

__all__ = ["sweep"]

_PASSED_ON = ("--skip", "--warmup", "--active", "--step-on")


class SweepCommand(RunCommand):
    """Takes `--over`, and options of ours behind it, after the program as well: there is one program and many values."""

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        """As for `run`; `--over` in the program's part begins options of ours again."""
        own, program = super().split(args)
        at = next((place for place, word in enumerate(program) if word.split("=", 1)[0] == "--over"), len(program))
        return own + program[at:], program[:at]


@click.command(
    cls=SweepCommand, options_metavar="[OPTIONS]", short_help="", epilog="Guide: docs/sweep.md in the repository."
)
@click.option(
    "--over",
    metavar="NAME=V1,V2,...",
    help="What to vary: the program gets `--NAME V1`; or V1 where its arguments say {NAME}; or, with env:NAME=..., in its "
    "environment.",
)
@click.option("--quick", is_flag=True, help="For programs with few steps: 3 timed, 3 recorded.")
@click.option("--step-on", metavar="FN", help="A step begins when this function of the script is called.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="First steps to leave alone.  [default: 3]")
@click.option("--warmup", metavar="N", type=click.IntRange(0), help="Steps for the profiler to warm up.  [default: 2]")
@click.option("--active", metavar="N", type=click.IntRange(1), help="Steps to record.  [default: 10 to 40]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("lanewise-out"),
    show_default=True,
    help="Folder for the traces.",
)
@json_option
@output_option
@click.pass_context
def sweep(
    ctx: click.Context, over: str | None, out: Path, as_json: bool, output: Path | None, force: bool, **given: Any
) -> None:
    """Record a program with each of several values, and say where its regime changes: from where on a larger batch costs
    time. The same is predicted from the first recording alone, and both are shown.

    \b
    lanewise sweep train.py --over batch=1,4,16,64,256         runs train.py --batch 1 ...
    lanewise sweep train.py data.batch={batch} --over batch=1,4,16,64
    lanewise sweep train.py --over env:BATCH_SIZE=1,4,16,64

    Each run ends when it is recorded. Options of lanewise stand before the program, or behind --over.
    """
    from lanewise.show.report.json import sweep_json
    from lanewise.show.report.sweep_text import render_sweep
    from lanewise.sweep.over import parse_over
    from lanewise.sweep.sweep import sweep_of

    if over is None:
        raise UsageError("what to vary? lanewise sweep SCRIPT --over batch=1,4,16,64")
    program, values = program_of(ctx.meta["program"], "sweep"), parse_over(over)
    need_torch()
    passed = [
        word
        for name in _PASSED_ON
        if (value := given[name[2:].replace("-", "_")]) is not None
        for word in (name, str(value))
    ]
    found = sweep_of(
        program,
        values,
        out,
        [*(["--quick"] if given["quick"] else []), *passed],
        lambda line: click.echo(line, err=True),
    )
    if as_json:
        emit(sweep_json(found), output, force)
    else:
        print_or_write(lambda terminal: terminal.print(render_sweep(found)), output, force)
