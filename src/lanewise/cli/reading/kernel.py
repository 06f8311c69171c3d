"""`lanewise kernel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lanewise.cli.common import emit, json_option, output_option, print_or_write
from lanewise.cli.duration import microseconds

if TYPE_CHECKING:
    from lanewise.measure.kernel.datasheet import Peak

__all__ = ["kernel"]

Named = TypeVar("Named")


@click.command()
@click.argument("source", metavar="FILE | FOLDER | FILE.py::KERNEL")
@click.option(
    "--name", metavar="PATTERN", default=None, help="Only kernels with this in their name, or like this: `*gemm*`."
)
@click.option(
    "--arg",
    "arguments",
    metavar="NAME=TYPE|VALUE",
    multiple=True,
    help="Of a Triton kernel in a Python file: an argument's type as in Triton (`x=*fp32`, `n=i32:16` for a multiple of "
    "16), or a constant's value (`TILE=1024`).",
)
@click.option(
    "--target", metavar="SM", default="90", show_default=True, help="Compute capability to compile for: 80, 90, 100."
)
@click.option(
    "--warps",
    metavar="N",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    help="Warps of a Triton kernel's block.",
)
@click.option(
    "--stages",
    metavar="N",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    help="Stages of its pipelined loops.",
)
@click.option(
    "--block", metavar="X[,Y[,Z]]", default=None, help="Threads of a block, where the code does not say: `256`, `32,8`."
)
@click.option("--grid", metavar="X[,Y[,Z]]", default=None, help="Blocks of a launch: says whether they fill the card.")
@click.option("--card", metavar="NAME", default="H100 SXM5", show_default=True, help="The card it runs on: H200, A100.")
@click.option(
    "--time",
    metavar="TIME",
    type=microseconds,
    default=None,
    help="What a launch takes, such as `850us`: with --grid, says what it would take without the defects.",
)
@json_option
@output_option
def kernel(
    source: str,
    name: str | None,
    arguments: tuple[str, ...],
    target: str,
    warps: int,
    stages: int,
    block: str | None,
    grid: str | None,
    card: str,
    time: float | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Say what limits a kernel, from its machine code: without running it, without a GPU.

    \b
    lanewise kernel softmax.cubin                     machine code
    lanewise kernel ~/.triton/cache                   all of a compiler's cache
    lanewise kernel kernel.ptx --target 80            PTX, compiled for a card
    lanewise kernel libmine.so --name "*attention*"   a library with CUDA code
    lanewise kernel sums.cu --block 256 --grid 200    CUDA C++, by nvcc or NVRTC
    lanewise kernel sums.cu -o sums.html              a page: source with heat
    lanewise kernel train.py::add --arg x=*fp32 --arg n=i32:16 --arg TILE=1024
                                                      a kernel of Triton's

    \b
    What its warps waited for, or how long its scopes took, while it ran:
    lanewise kernel train.samples.json                of `lanewise run --sample`
    lanewise kernel train.scopes.json                 of `lanewise run --scopes`

    It needs NVIDIA's disassembler, which `pip install triton` brings (docs/inside-a-kernel.md).
    """
    import tempfile

    from lanewise.machine_code.cubins import kernels_in
    from lanewise.machine_code.limiter import limits_of
    from lanewise.machine_code.mended import gain_of
    from lanewise.machine_code.sampled.samples import is_samples
    from lanewise.machine_code.sampled.scopes import is_scopes
    from lanewise.machine_code.triton_kernel import capability_of, compiled

    if is_samples(source):
        _print_samples(Path(source), name, as_json, output, force)
        return
    if is_scopes(source):
        _print_scopes(Path(source), name, as_json, output, force)
        return
    capability = capability_of(target)
    file, separator, function = source.rpartition("::")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(source)
        if separator and file.endswith(".py"):
            path = compiled(Path(file), function, arguments, capability, warps, stages, Path(folder))
        kernels = _named(kernels_in(path, capability=capability), lambda one: one.code.name, name, source)
    threads, blocks, peak = _sizes("--block", block), _sizes("--grid", grid), _peak(card)
    if path != Path(source):
        kernels = [replace(one, file=Path(source)) for one in kernels]
    if threads is not None:
        kernels = [replace(one, block=threads) for one in kernels]
    number = 0 if blocks is None else prod(blocks)
    found = [limits_of(one, grid=number, card=peak) for one in kernels]
    gains = [gain_of(one, number, peak, seconds=1e-6 * (time or 0)) for one in found]
    if as_json:
        from lanewise.show.kernel.kernel_json import kernels_json

        emit(kernels_json(found, gains), output, force)
        return
    if _is_page(output):
        from lanewise.show.kernel.kernel_page import kernel_page, of_verdict

        emit(kernel_page(source, list(map(of_verdict, found, gains))), output, force)
        return
    from lanewise.show.kernel.kernel_text import render_verdicts

    print_or_write(lambda terminal: terminal.print(render_verdicts(found, gains)), output, force)


def _is_page(output: Path | None) -> bool:
    return output is not None and output.suffix.lower() in (".html", ".htm")


def _print_samples(path: Path, name: str | None, as_json: bool, output: Path | None, force: bool) -> None:
    """What warps were seen to wait for, as it was asked for."""
    from lanewise.machine_code.sampled.samples import read_samples
    from lanewise.machine_code.sampled.stalls import stalls_of
    from lanewise.show.kernel.kernel_page import kernel_page, of_stalls
    from lanewise.show.kernel.stalls_json import stalls_json
    from lanewise.show.kernel.stalls_text import render_stalls

    samples = read_samples(path)
    found = _named(stalls_of(samples), lambda one: one.name, name, str(path))
    if as_json:
        emit(stalls_json(samples, found), output, force)
    elif _is_page(output):
        emit(kernel_page(str(path), [of_stalls(one) for one in found]), output, force)
    else:
        print_or_write(lambda terminal: terminal.print(render_stalls(samples, found)), output, force)


def _print_scopes(path: Path, name: str | None, as_json: bool, output: Path | None, force: bool) -> None:
    """How long warps were in their scopes, as it was asked for."""
    from lanewise.machine_code.sampled.scopes import read_scopes, scoped_kernels
    from lanewise.show.kernel.scopes_page import scopes_page
    from lanewise.show.kernel.scopes_text import render_scopes, scopes_json

    found = _named(scoped_kernels(read_scopes(path)), lambda one: one.name, name, str(path))
    if as_json:
        emit(scopes_json(found), output, force)
    elif _is_page(output):
        emit(scopes_page(str(path), found), output, force)
    else:
        print_or_write(lambda terminal: terminal.print(render_scopes(found)), output, force)


def _sizes(option: str, text: str | None) -> tuple[int, int, int] | None:
    """Numbers in x, y and z."""
    if text is None:
        return None
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        from lanewise.errors import UsageError

        raise UsageError(f"{option} takes up to three numbers such as `256` or `32,8`, not {text!r}")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z


def _peak(name: str) -> Peak:
    from lanewise.measure.kernel.datasheet import PEAKS, peak_called

    found = peak_called(name)
    if found is None:
        from lanewise.errors import UsageError

        raise UsageError(f"--card: no {name!r} in the table; it has {', '.join(peak.card for _, peak in PEAKS)}")
    return found


def _named(kernels: list[Named], called: Callable[[Named], str], pattern: str | None, source: str) -> list[Named]:
    """Those whose names fit."""
    if pattern is None:
        return kernels
    low = pattern.lower()
    found = [one for one in kernels if low in called(one).lower() or fnmatch(called(one).lower(), low)]
    if not found:
        from lanewise.errors import UsageError

        names = sorted(set(map(called, kernels)))
        raise UsageError(
            f"{source} has no kernel like {pattern!r}; it has {', '.join(names[:8])}"
            + (", ..." if len(names) > 8 else "")
        )
    return found
