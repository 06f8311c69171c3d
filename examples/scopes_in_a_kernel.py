"""A Triton kernel with scopes: parts that a profiler can time inside of it, for each of its warps.

Without a profiler the scopes are nothing: the compiler sees them only while Proton, Triton's own, is timing them.
"""

import triton
import triton.language as tl
import triton.profiler.language as pl


@triton.jit
def scoped_sums(x, out, columns, TILE: tl.constexpr, each: tl.constexpr):
    """A block adds up a row. `each`: every tile's load is a scope, too."""
    row = tl.program_id(0)
    total = tl.zeros((TILE,), tl.float32)
    pl.enter_scope("tiles")
    for start in range(0, columns, TILE):
        if each:
            pl.enter_scope("load")
        tile = tl.load(x + row * columns + start + tl.arange(0, TILE))
        if each:
            pl.exit_scope("load")
        total += tile
    pl.exit_scope("tiles")
    pl.enter_scope("sum")
    tl.store(out + row, tl.sum(total, 0))
    pl.exit_scope("sum")


def main():
    """Add up the rows of a matrix some times."""
    import torch

    rows, columns = 256, 16384
    x, out = torch.rand(rows, columns, device="cuda"), torch.empty(rows, device="cuda")
    for _ in range(5):
        scoped_sums[(rows,)](x, out, columns, TILE=1024, each=True)
    torch.cuda.synchronize()
    assert torch.allclose(out, x.sum(1), rtol=1e-3)


if __name__ == "__main__":
    main()
