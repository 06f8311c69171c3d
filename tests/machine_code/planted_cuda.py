"""What limits each kernel of `planted.cu`, and how it is launched: 20 with a defect, their mended twins, and good ones.

`python -m tests.machine_code.planted_cuda` writes the listings in tests/data/machine_code anew; it needs nvcc or NVRTC, and
no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEFECTS", "GOOD", "LISTINGS", "SOURCE", "Plant"]

SOURCE = Path(__file__).with_name("planted.cu")
LISTINGS = Path(__file__).parents[1] / "data" / "machine_code" / "planted_cuda.json.gz"


@dataclass(frozen=True)
class Plant:
    """A kernel of the file.

    Attributes:
        name: of the kernel; its twin has `_mended` behind it. limiter: the first one that is to be named.
        block: threads of a block. grid: blocks. mended_block, mended_grid: those of the twin, where they are others.
    """

    name: str
    limiter: str
    block: tuple[int, int, int] = (256, 1, 1)
    grid: tuple[int, int, int] = (4096, 1, 1)
    mended_block: tuple[int, int, int] | None = None
    mended_grid: tuple[int, int, int] | None = None


TILES = (256, 256, 1)
DEFECTS = (
    Plant("row_sums", "uncoalesced loads", grid=(256, 1, 1), mended_grid=(8192, 1, 1)),
    Plant("transpose", "uncoalesced stores", (32, 8, 1), TILES),
    Plant("tile_columns", "bank conflicts", (32, 8, 1), TILES),
    Plant("own_words", "bank conflicts", (128, 1, 1), (2112, 1, 1)),
    Plant("one_field", "uncoalesced loads", grid=(65536, 1, 1)),
    Plant("swapped_indices", "uncoalesced loads", (32, 8, 1), (256, 1024, 1), mended_grid=(256, 1024, 1)),
    Plant("bytes", "narrow loads", grid=(1 << 20, 1, 1), mended_grid=(1 << 16, 1, 1)),
    Plant("sum_of_halves", "narrow loads", (128, 1, 1), (2112, 1, 1)),
    Plant("too_few_registers", "spills", (1024, 1, 1), (264, 1, 1), mended_grid=(132, 1, 1)),
    Plant("local_array", "spills", grid=(792, 1, 1)),
    Plant("too_much_shared", "occupancy", (64, 1, 1), (528, 1, 1), mended_grid=(4224, 1, 1)),
    Plant("held_values", "occupancy", (128, 1, 1), (264, 1, 1), mended_grid=(2112, 1, 1)),
    Plant("odd_and_even", "divergence"),
    Plant("one_sum", "atomics", grid=(1056, 1, 1)),
    Plant("chase", "latency", grid=(1056, 1, 1)),
    Plant("double_constant", "double precision"),
    Plant("divisions", "integer division", grid=(1056, 1, 1)),
    Plant("plain_product", "no tensor cores", grid=(64, 64, 1)),
    Plant("few_rows", "too few blocks", (512, 1, 1), (16, 1, 1), mended_grid=(16, 64, 1)),
    Plant("units", "tail", (1024, 1, 1), (140, 1, 1), mended_grid=(132, 1, 1)),
)
GOOD = (
    Plant("copy", "memory"),
    Plant("axpy", "memory"),
    Plant("lengths", "memory"),
    Plant("transpose_swizzled", "memory", (32, 8, 1), TILES),
    Plant("stencil", "memory"),
    Plant("softmax", "memory"),
)
"""Beside the twins."""


def main() -> None:
    """Write the listings."""
    import gzip
    import json
    import re
    import tempfile

    import click

    from lanewise.machine_code.cubins import listings_of
    from lanewise.machine_code.cuda_source import compiled_cuda

    with tempfile.TemporaryDirectory() as folder:
        texts = list(listings_of(compiled_cuda(SOURCE, (9, 0), Path(folder))))
    texts[0] = re.sub(r'"[^"\n]*/planted\.cu"', '"planted.cu"', texts[0])
    # Of the sections only what kernels ask for: the others hold paths of this machine.
    texts[2] = texts[2][texts[2].find("\n.nv.info") : texts[2].find("\n.nv.callgraph")]
    LISTINGS.write_bytes(gzip.compress(json.dumps(texts).encode(), 9, mtime=0))
    click.echo(f"{LISTINGS}: {LISTINGS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
