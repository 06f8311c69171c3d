"""`lanewise kernel`."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import emit, json_option, output_option, print_or_write

if TYPE_CHECKING:
    from lanewise.machine_code.cubins import Kernel

__all__ = ["kernel"]


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
    "--warps", type=click.IntRange(1, 32), default=4, show_default=True, help="Warps of a Triton kernel's block."
)
@click.option(
    "--stages", type=click.IntRange(1, 16), default=3, show_default=True, help="Stages of its pipelined loops."
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
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Say what limits a kernel, from its machine code: without running it, without a GPU.

    \b
    lanewise kernel softmax.cubin                      machine code
    lanewise kernel ~/.triton/cache                    all that a compiler has left in its cache
    lanewise kernel kernel.ptx --target 80             PTX, compiled for a card
    lanewise kernel libmine.so --name "*attention*"    a library or program with CUDA code
    lanewise kernel train.py::add --arg x=*fp32 --arg n=i32:16 --arg TILE=1024
                                                       a Triton kernel; the file is imported, nothing is launched

    It needs NVIDIA's disassembler, which `pip install triton` brings (docs/inside-a-kernel.md).
    """
    import tempfile

    from lanewise.machine_code.cubins import kernels_in
    from lanewise.machine_code.limiter import limits_of
    from lanewise.machine_code.triton_kernel import capability_of, compiled

    capability = capability_of(target)
    file, separator, function = source.rpartition("::")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(source)
        if separator and file.endswith(".py"):
            path = compiled(Path(file), function, arguments, capability, warps, stages, Path(folder))
        kernels = _named(kernels_in(path, capability=capability), name, source)
    found = [limits_of(one if path == Path(source) else replace(one, file=Path(source))) for one in kernels]
    if as_json:
        from lanewise.show.kernel.kernel_json import kernels_json

        emit(kernels_json(found), output, force)
        return
    from lanewise.show.kernel.kernel_text import render_verdicts

    print_or_write(lambda terminal: terminal.print(render_verdicts(found)), output, force)


def _named(kernels: list[Kernel], pattern: str | None, source: str) -> list[Kernel]:
    """Those whose names fit."""
    if pattern is None:
        return kernels
    low = pattern.lower()
    found = [one for one in kernels if low in one.code.name.lower() or fnmatch(one.code.name.lower(), low)]
    if not found:
        from lanewise.errors import UsageError

        names = sorted({one.code.name for one in kernels})
        raise UsageError(
            f"{source} has no kernel like {pattern!r}; it has {', '.join(names[:8])}"
            + (", ..." if len(names) > 8 else "")
        )
    return found
