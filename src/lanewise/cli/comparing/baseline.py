"""`lanewise baseline`."""

from __future__ import annotations

from pathlib import Path

import click

from lanewise.cli.common import cache_option, emit, open_trace, project_settings, step_time_option

__all__ = ["baseline"]


@click.group()
def baseline() -> None:
    """Save what a program did, to compare later recordings with."""


@baseline.command()
@click.argument("sources", metavar="TRACE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("lanewise-baseline.json"),
    show_default=True,
    help="The file.",
)
@click.option("--label", default="baseline", show_default=True, help="What comparisons call it.")
@step_time_option
@click.option("--force", is_flag=True, help="Overwrite the file.")
@cache_option
def save(sources: tuple[str, ...], output: Path, label: str, step_time: float | None, force: bool, cache: bool) -> None:
    """Keep what recordings of one program did per step.

    Every TRACE (or directory of them) is one more run. The file is small, holds names, times and the environment, and
    can be committed; `lanewise check` and `lanewise diff` take it in place of the traces.
    """
    from dataclasses import replace

    from lanewise.compare.diff import arms_of
    from lanewise.compare.sides.arm import Arm
    from lanewise.compare.sides.baseline import dump_baseline

    times = [step_time] * len(sources) if step_time is not None else []
    # All findings are kept: what a project leaves out may change, and comparisons leave it out themselves.
    settings = replace(project_settings(), select=(), ignore=())
    arms = arms_of(
        list(sources), unprofiled_us=times, read_trace=lambda name: open_trace(name, cache=cache), settings=settings
    )
    arm = Arm(label, [run for one in arms for run in one.runs])
    emit(dump_baseline(arm).decode(), output, force)
    runs = f"{len(arm.runs)} run{'s' if len(arm.runs) > 1 else ''}"
    click.echo(f"{output}: {runs}, {arm.step_ns / 1e3:,.1f} us per step", err=True)
