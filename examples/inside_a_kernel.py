"""Kernels in pairs: one that is slow for a reason that its machine code shows, and one that is not.

What is in their machine code can be read without a GPU; run as a program, the file launches the first two on one.
"""

import triton
import triton.language as tl


@triton.jit
def row_sums_apart(x, out, rows, columns, TILE: tl.constexpr):
    """A thread adds up a row: neighbouring threads read neighbouring rows, which lie far apart."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for column in range(columns):
        total += tl.load(x + row * columns + column)
    tl.store(out + row, total)


@triton.jit
def row_sums(x, out, rows, columns, TILE: tl.constexpr):
    """A block adds up a row: neighbouring threads read neighbouring numbers."""
    row = tl.program_id(0)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, columns, TILE):
        total += tl.load(x + row * columns + start + tl.arange(0, TILE))
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def product(a, b, c, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr):
    """A matrix product: `PRECISION` is `ieee` for plain float32, `tf32` for tensor cores."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, K, STEP):
        at = start + tl.arange(0, STEP)
        x = tl.load(a + row[:, None] * K + at[None, :])
        y = tl.load(b + at[:, None] * N + column[None, :])
        total += tl.dot(x, y, input_precision=PRECISION)
    tl.store(c + row[:, None] * N + column[None, :], total)


def main():
    """Add up the rows of a matrix in both ways for some seconds, long enough to look at."""
    import time

    import torch

    rows, columns = 16384, 4096
    x, out = torch.rand(rows, columns, device="cuda"), torch.empty(rows, device="cuda")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        row_sums_apart[(rows // 256,)](x, out, rows, columns, TILE=256)
        row_sums[(rows,)](x, out, rows, columns, TILE=1024)
        torch.cuda.synchronize()
    assert torch.allclose(out, x.sum(1), rtol=1e-3)


if __name__ == "__main__":
    main()
