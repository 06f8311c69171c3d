"""Both layers of an MLP, in one kernel or in two launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.kernels.cases.case import BF16, Case, randn

from lanewise.kernels import cost
from lanewise.kernels.gemm import dual_gemm
from lanewise.kernels.gemm import fused_gated_mlp as gated_mlps
from lanewise.kernels.gemm import fused_mlp as mlps
from lanewise.kernels.gemm.fused_mlp import Blocks

__all__ = ["gated_mlp_cases", "mlp_cases"]

_F = torch.nn.functional


def mlp_cases() -> Iterator[Case]:
    """Whole MLPs, narrow enough for one kernel."""
    for d, h, m in ((64, 64, 65536), (128, 128, 65536), (64, 256, 8192), (64, 256, 65536), (128, 512, 65536)):

        def make(i: int, d: int = d, h: int = h, m: int = m) -> tuple[Any, ...]:
            return (
                randn(m, d, seed=i),
                randn(h, d, seed=i + 1, scale=d**-0.5),
                randn(h, seed=i + 2),
                randn(d, h, seed=i + 3, scale=h**-0.5),
                randn(d, seed=i + 4),
            )

        def half_fused(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> torch.Tensor:
            return _F.linear(torch._addmm_activation(b1, x, w1.t(), use_gelu=True), w2, b2)

        resident = [
            Blocks(bm, 0, warps, stages, per_sm)
            for bm, warps, stages, per_sm in (
                (64, 4, 2, 2),
                (64, 4, 3, 2),
                (64, 4, 3, 4),
                (64, 4, 4, 4),
                (64, 8, 2, 1),
                (64, 8, 2, 2),
                (64, 4, 1, 2),
                (128, 8, 2, 2),
            )
        ]
        walk = [
            Blocks(bm, bh, warps, stages, 1)
            for bm, bh, warps, stages in (
                (64, 64, 4, 2),
                (64, 64, 4, 3),
                (128, 64, 8, 3),
                (128, 64, 4, 2),
                (128, 128, 8, 2),
                (128, 32, 4, 3),
                (256, 64, 8, 2),
            )
            if bh <= h
        ]
        weights = 4 * h * d
        candidates = (resident if weights <= 131072 else []) + (walk if h > 64 else [])
        yield Case(
            "mlp",
            f"mlp {d}-{h}-{d} x{m}",
            make,
            {"lanewise": mlps.mlp, "eager": mlps.reference, "cublas epilogue": half_fused},
            cost.mlp_cost(m, d, h, d, 2),
            lambda x, w1, b1, w2, b2: mlps.reference(x.float(), w1.float(), b1.float(), w2.float(), b2.float()),
            compiled=("compile", "max-autotune"),
            tune=("mlp", (BF16, d, h, d, m >= 32768), tuple(candidates)),
            shape={"d": d, "h": h, "m": m},
        )


def gated_mlp_cases() -> Iterator[Case]:
    """Gated MLPs of few rows, as in decoding."""
    for d, h in ((4096, 14336), (2048, 5632), (1024, 2816)):
        for m in (1, 8):

            def make(i: int, m: int = m, d: int = d, h: int = h) -> tuple[Any, ...]:
                weights = ((h, d), (h, d), (d, h))
                return (
                    randn(m, d, seed=i),
                    *(randn(*s, seed=i + 1 + n, scale=s[1] ** -0.5) for n, s in enumerate(weights)),
                )

            yield Case(
                "gated_mlp",
                f"gated mlp {m} rows, {d} -> {h} -> {d}",
                make,
                {
                    "lanewise": gated_mlps.gated_mlp,
                    "eager": gated_mlps.reference,
                    "gated + cublas": lambda x, g, u, w: _F.linear(dual_gemm.gated_linear(x, g, u), w),
                },
                cost.gated_mlp_cost(m, d, h, d, 2),
                lambda x, g, u, w: gated_mlps.reference(x.float(), g.float(), u.float(), w.float()),
                shape={"m": m, "d": d, "h": h},
            )
