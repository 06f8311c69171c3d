"""What the row-wise kernels are made of: reading and writing a block of a row, and the moments of its parts."""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["add_pairs", "first_mean", "in_steps", "load", "merged_moments", "part_of_row", "store"]


@triton.jit
def add_pairs(a, b, c, d):
    """For `tl.reduce` of two tensors at once."""
    return a + c, b + d


@triton.jit
def in_steps(n, ALIGN: tl.constexpr):
    """`n`, which is a multiple of ALIGN, so that the compiler knows it: rows of 1000 values can be read 8 at a time.

    By itself Triton tells only multiples of 16 from others.
    """
    return n // ALIGN * ALIGN


@triton.jit
def load(at, inside, OTHER: tl.constexpr, POLICY: tl.constexpr, EVEN: tl.constexpr):
    """What lies at the addresses `at`; OTHER where it is not `inside`, which is not asked where everything is (EVEN)."""
    if EVEN:
        value = tl.load(at, eviction_policy=POLICY)
    else:
        value = tl.load(at, mask=inside, other=OTHER, eviction_policy=POLICY)
    return value


@triton.jit
def store(at, value, inside, POLICY: tl.constexpr, EVEN: tl.constexpr):
    """Write `value`, rounded to what `at` points to, as `load` reads."""
    if EVEN:
        tl.store(at, value.to(at.dtype.element_ty), eviction_policy=POLICY)
    else:
        tl.store(at, value.to(at.dtype.element_ty), mask=inside, eviction_policy=POLICY)


@triton.jit
def first_mean(x_ptr, r_ptr, cols, ADD: tl.constexpr):
    """Mean of the first 32 of `cols` values (of fewer, if there are no more; 0 of none)."""
    col = tl.arange(0, 32)
    x = tl.load(x_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(r_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    return tl.sum(x, axis=0) / tl.maximum(tl.minimum(cols, 32), 1)


@triton.jit
def merged_moments(firsts, seconds, known, parts, cols, BLOCK: tl.constexpr):
    """Mean and variance of a row from the mean and the sum of squares around it of each of its parts of BLOCK columns.

    Chan, Golub and LeVeque, Algorithms for computing the sample variance, 1983.
    """
    sizes = tl.maximum(tl.where(known, tl.minimum(cols - parts * BLOCK, BLOCK), 0), 0).to(tl.float32)
    mean = tl.sum(firsts * sizes, axis=0) / cols
    # Rounded (and divided approximately): what it missed is the mean of what is left.
    mean += tl.sum(sizes * (firsts - mean), axis=0) / cols
    apart = tl.where(known, firsts - mean, 0.0)
    return mean, tl.sum(seconds + sizes * apart * apart, axis=0) / cols


@triton.jit
def part_of_row(x_ptr, r, rows, stride, col, inside, OTHER: tl.constexpr, POLICY: tl.constexpr):
    """The program's part of row r, in its own dtype; nothing is read past the last row."""
    base = x_ptr + stride * (r + tl.program_id(0).to(tl.int64) * 0)
    return tl.load(base + col, mask=inside & (r < rows), other=OTHER, eviction_policy=POLICY)
