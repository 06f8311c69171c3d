"""Chains of pointwise operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from benchmarks.kernels.cases.case import Case, randn
from benchmarks.kernels.other_libraries import liger

from lanewise.kernels import (
    cost,
    elementwise,
)
from lanewise.kernels.pointwise_chain import PointBlocks, pointwise

__all__ = ["pointwise_cases"]

_F = torch.nn.functional


def _chain(operations: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        for step in range(operations):
            x = x * 1.001 if step % 2 == 0 else x + 0.001
        return x

    run.__name__ = f"chain_{operations}"
    return run


def pointwise_cases() -> Iterator[Case]:
    """Pointwise work, from one operation to chains of many."""
    n = 1 << 28
    blocks = tuple(
        PointBlocks(*cut)
        for cut in ((1024, 4, True), (1024, 4, False), (2048, 4, False), (2048, 8, False), (4096, 8, False))
    )
    for operations in (1, 2, 5, 10, 30):
        expression = _chain(operations)
        yield Case(
            "pointwise",
            f"chain of {operations}",
            lambda i: (randn(1 << 28, seed=i),),
            {"lanewise": pointwise(expression), "eager": expression, "copy": torch.clone},
            cost.pointwise_cost(n, operations, 2.0 * n, 2.0 * n),
            lambda x, f=expression: f(x.float()),
            tune=("pointwise", (2, 1), blocks),
            shape={"elements": n, "operations": operations},
        )
    m, h = 8192, 14336
    yield Case(
        "pointwise",
        f"silu_mul {m}x{h}",
        lambda i: (randn(8192, 14336, seed=i), randn(8192, 14336, seed=i + 1)),
        {"lanewise": elementwise.silu_mul, "eager": lambda g, u: _F.silu(g) * u, **liger("silu_mul")},
        cost.pointwise_cost(m * h, 6, 4.0 * m * h, 2.0 * m * h),
        lambda g, u: _F.silu(g.float()) * u.float(),
        tune=("pointwise", (2, 2), blocks),
        shape={"rows": m, "cols": h},
    )
    yield Case(
        "pointwise",
        f"gelu_tanh_mul {m}x{h}",
        lambda i: (randn(8192, 14336, seed=i), randn(8192, 14336, seed=i + 1)),
        {
            "lanewise": elementwise.gelu_tanh_mul,
            "eager": lambda g, u: _F.gelu(g, approximate="tanh") * u,
            **liger("gelu_tanh_mul"),
        },
        cost.pointwise_cost(m * h, 10, 4.0 * m * h, 2.0 * m * h),
        lambda g, u: _F.gelu(g.float(), approximate="tanh") * u.float(),
        tune=("pointwise", (2, 2), blocks),
        shape={"rows": m, "cols": h},
    )
    yield Case(
        "pointwise",
        f"bias_gelu {m}x{h}",
        lambda i: (randn(8192, 14336, seed=i), randn(14336, seed=i + 1)),
        {"lanewise": elementwise.bias_gelu, "eager": lambda x, b: _F.gelu(x + b)},
        cost.pointwise_cost(m * h, 10, 2.0 * m * h, 2.0 * m * h),
        lambda x, b: _F.gelu(x.float() + b.float()),
        shape={"rows": m, "cols": h},
    )
    yield Case(
        "pointwise",
        "vector add (masked)",
        lambda i: (randn(1 << 28, seed=i), randn(1 << 28, seed=i + 1)),
        {
            "lanewise": elementwise.add_masked,
            "plain": elementwise.add_plain,
            "autotuned": elementwise.add_autotuned,
            "eager": torch.add,
        },
        cost.pointwise_cost(n, 1, 4.0 * n, 2.0 * n),
        lambda a, b: a.float() + b.float(),
        compiled=(),
        shape={"elements": n},
    )
