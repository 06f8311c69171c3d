"""`lanewise bench`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """Measure this machine."""


@bench.command()
@click.option("--kernel", "kernels", multiple=True, help="Group to measure (softmax, norm, ...); all by default.")
@click.option("--match", default="", help="Only cases whose name holds this regular expression.")
@click.option("--rounds", default=10, show_default=True, help="Rounds in which the arms take turns.")
@click.option("--seconds", default=600.0, show_default=True, help="Start no case after this many seconds.")
@click.option(
    "--tune", is_flag=True, help="Time the candidate configurations first and keep the fastest for this card."
)
@click.option("--max-autotune", is_flag=True, help="Also compare with torch.compile max-autotune-no-cudagraphs.")
@click.option("--workers", default=0, help="Processes that compile ahead.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the rounds and the machine record as JSON.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a chart per kind of kernel into this directory.")
def kernels(
    kernels: tuple[str, ...],
    match: str,
    rounds: int,
    seconds: float,
    tune: bool,
    max_autotune: bool,
    workers: int,
    out: Path | None,
    plot: Path | None,
) -> None:
    """Check and time the kernels against eager and torch.compile on this machine's GPU.

    A kernel whose result is not right is not timed. Device time is that of CUDA graphs over inputs that are not in L2.
    """
    from lanewise.errors import MissingDependencyError, UsageError

    try:
        torch: Any = importlib.import_module("torch")
        from lanewise.kernels import bench as benchmark
        from lanewise.kernels.cases.groups import GROUPS
        from lanewise.kernels.charts import write_charts
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"this needs {error.name}: pip install {error.name}") from None
    unknown = [name for name in kernels if name not in GROUPS]
    if unknown:
        raise UsageError(f"no kernels called {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    if not torch.cuda.is_available():
        raise UsageError("the kernels are timed on a CUDA device, and there is none here")
    document = benchmark.run(
        out,
        tuple(kernels),
        seconds=seconds,
        rounds=rounds,
        tuning_too=tune,
        keep=tune,
        modes=("compile", "max-autotune") if max_autotune else ("compile",),
        workers=workers,
        match=match,
        say=click.echo,
    )
    if plot is not None:
        for path in write_charts([document], plot):
            click.echo(f"wrote {path}")
