"""Products of matrices, by themselves, with what follows in the epilogue, gated, and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from benchmarks.kernels.cases.case import BF16, Case, randn

from lanewise.kernels import cost
from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.gemm import batched_linear as batched
from lanewise.kernels.gemm import dual_gemm, gemm_epilogue
from lanewise.kernels.gemm.dual_gemm import gated_blocks
from lanewise.kernels.gemm.gemm_epilogue import skinny_blocks, tile_blocks
from lanewise.kernels.gemm.matmul import SkinnyBlocks, TileBlocks, product

__all__ = ["batched_cases", "dual_cases", "gemm_cases", "plain_cases"]


GEMM_SHAPES = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 16384, 4096), (64, 4096, 4096))

TILES = (
    TileBlocks(128, 256, 64, 8, 3, 8, 2, True),
    TileBlocks(128, 256, 64, 8, 4, 8, 2, True),
    TileBlocks(128, 256, 64, 8, 4, 16, 2, True),
    TileBlocks(256, 128, 64, 8, 4, 8, 2, True),
    TileBlocks(128, 128, 64, 4, 3, 8, 2, True, False, 2),
    TileBlocks(128, 128, 64, 4, 3, 8, 2, False, False, 2),
)


def _product(x: Any, w: Any, up: Any, bias: Any, code: int, default: SkinnyBlocks | TileBlocks) -> torch.Tensor:
    """Our kernel whatever the route says, with the configuration under trial."""
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    kernel = "skinny" if isinstance(default, SkinnyBlocks) else "tiles"
    blocks: Any = tuning.pick(kernel, (m, n, k, BF16, up is not None), default)
    product(x, w, up, bias, None, code, out, blocks)
    return out


def plain_cases() -> Iterator[Case]:
    """Products alone, against cuBLAS."""
    for m, n, k in ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 16384, 4096)):
        yield Case(
            "mm",
            f"product {m}x{n}x{k}",
            lambda i, m=m, n=n, k=k: (randn(m, k, seed=i), randn(n, k, seed=i + 1, scale=k**-0.5)),
            {
                "triton": lambda x, w: _product(x, w, None, None, 0, tile_blocks(x.shape[0], w.shape[0])),
                "eager": lambda x, w: torch.mm(x, w.t()),
            },
            cost.linear_cost(m, n, k, 2, bias=False),
            lambda x, w: x.float() @ w.float().t(),
            compiled=(),
            tune=("tiles", (m, n, k, BF16, False), TILES),
            shape={"m": m, "n": n, "k": k},
        )


def gemm_cases() -> Iterator[Case]:
    """A product with bias and activation in its epilogue."""
    for m, n, k in GEMM_SHAPES:

        def make(i: int, m: int = m, n: int = n, k: int = k) -> tuple[Any, ...]:
            return randn(m, k, seed=i), randn(n, k, seed=i + 1, scale=k**-0.5), randn(n, seed=i + 2)

        for activation in ("gelu_tanh", "gelu"):
            code = ACTIVATIONS[activation]

            def fused(x: Any, w: Any, b: Any, code: int = code) -> torch.Tensor:
                (m, k), n = x.shape, w.shape[0]
                return _product(x, w, None, b, code, skinny_blocks(m, n, k) if m <= 64 else tile_blocks(m, n))

            def plain(x: Any, w: Any, b: Any, act: str = activation) -> torch.Tensor:
                return gemm_epilogue.reference(x, w, b, act)

            arms: dict[str, Callable[..., Any]] = {
                "lanewise": lambda x, w, b, act=activation: gemm_epilogue.linear_act(x, w, b, act),
                "triton": fused,
                "eager": plain,
                "mm alone": lambda x, w, b: torch.mm(x, w.t()),
            }
            if activation == "gelu_tanh":
                arms["cublas epilogue"] = lambda x, w, b: torch._addmm_activation(b, x, w.t(), use_gelu=True)
            if m <= 64:
                tune = (
                    "skinny",
                    (m, n, k, BF16, False),
                    tuple(
                        SkinnyBlocks(64, bn, bk, split, warps, stages)
                        for bn, bk, split, warps, stages in (
                            (32, 128, 1, 4, 4),
                            (32, 128, 2, 4, 4),
                            (64, 128, 2, 4, 3),
                            (64, 128, 4, 4, 3),
                            (32, 256, 1, 4, 3),
                            (16, 256, 1, 4, 3),
                            (16, 128, 1, 4, 5),
                            (32, 64, 2, 4, 6),
                        )
                    )
                    + tuple(
                        TileBlocks(64, bn, bk, 4, stages, 1, 1, False, False, per_sm)
                        for bn, bk, stages, per_sm in (
                            (32, 128, 4, 1),
                            (32, 64, 7, 1),
                            (16, 128, 4, 2),
                            (32, 256, 3, 1),
                        )
                    ),
                )
            else:
                tune = (
                    "tiles",
                    (m, n, k, BF16, False),
                    (*TILES,),
                )
            yield Case(
                "gemm",
                f"linear + {activation} {m}x{n}x{k}",
                make,
                arms,
                cost.linear_cost(m, n, k, 2),
                lambda x, w, b, act=activation: gemm_epilogue.reference(x.float(), w.float(), b.float(), act),
                compiled=("compile", "max-autotune") if activation == "gelu_tanh" else ("compile",),
                tune=tune,
                shape={"m": m, "n": n, "k": k},
            )


def dual_cases() -> Iterator[Case]:
    """Two products of the same rows, one the gate of the other."""
    n, k = 14336, 4096
    for m in (1, 8, 64, 512, 2048, 8192):

        def make(i: int, m: int = m) -> tuple[Any, ...]:
            return (
                randn(m, 4096, seed=i),
                randn(14336, 4096, seed=i + 1, scale=1 / 64),
                randn(14336, 4096, seed=i + 2, scale=1 / 64),
            )

        def fused(x: Any, g: Any, u: Any) -> torch.Tensor:
            m = x.shape[0]
            default = skinny_blocks(m, 14336, 4096, True) if m <= 64 else gated_blocks(m, 14336)
            return _product(x, g, u, None, ACTIVATIONS["silu"], default)

        if m <= 64:
            bm = max(16, m)
            few = [
                SkinnyBlocks(bm, *cut)
                for cut in (
                    (32, 256, 1, 4, 3),
                    (32, 64, 1, 4, 6),
                    (64, 64, 1, 4, 4),
                    (64, 128, 1, 4, 3),
                    (64, 64, 1, 4, 6),
                    (64, 128, 1, 8, 3),
                )
            ]
            wide = [TileBlocks(64, 64, 64, 4, 4, 1, 1, False, True, 2)] if m > 16 else []
            tune: tuple[str, Any, tuple[Any, ...]] = ("skinny", (m, n, k, BF16, True), (*few, *wide))
        else:
            tune = (
                "tiles",
                (m, n, k, BF16, True),
                (
                    TileBlocks(128, 128, 64, 8, 3, 8, 1, False),
                    TileBlocks(128, 128, 64, 8, 3, 8, 1, False, True),
                    TileBlocks(128, 128, 64, 8, 4, 8, 1, True, True),
                    TileBlocks(128, 128, 64, 8, 4, 16, 1, True, True),
                    TileBlocks(256, 64, 64, 8, 4, 8, 1, True, True),
                    TileBlocks(128, 64, 64, 4, 3, 8, 1, True, True, 2),
                    TileBlocks(128, 64, 64, 4, 3, 8, 1, False, True, 2),
                    TileBlocks(128, 64, 64, 4, 3, 16, 1, True, True, 2),
                ),
            )
        yield Case(
            "gated_linear",
            f"swiglu {m} rows, {k} -> 2x{n}",
            make,
            {"lanewise": dual_gemm.gated_linear, "triton": fused, "eager": dual_gemm.reference},
            cost.gated_linear_cost(m, n, k, 2),
            lambda x, g, u: dual_gemm.reference(x.float(), g.float(), u.float()),
            compiled=("compile", "max-autotune"),
            tune=tune,
            shape={"m": m, "n": n, "k": k},
        )


def batched_cases() -> Iterator[Case]:
    """A batch of linear layers with bias and GELU."""
    for b, m, n, k in ((64, 1024, 1024, 64), (32, 2048, 1024, 256), (16, 4096, 2048, 512), (8, 4096, 4096, 1024)):

        def make(i: int, b: int = b, m: int = m, n: int = n, k: int = k) -> tuple[Any, ...]:
            weight = randn(b, n, k, seed=i + 1, scale=k**-0.5)
            return randn(b, m, k, seed=i), weight, randn(b, n, seed=i + 2)

        def ours(x: Any, w: Any, bias: Any) -> torch.Tensor:
            (b, m, k), n = x.shape, w.shape[1]
            out = torch.empty(b, m, n, dtype=x.dtype, device=x.device)
            blocks = tuning.pick("batched", (b, m, n, k, BF16), batched.batched_blocks(m, n))
            batched.batched_into(x, w, bias, ACTIVATIONS["gelu"], out, blocks)
            return out

        yield Case(
            "batched_linear",
            f"batched linear + gelu {b}x{m}x{n}x{k}",
            make,
            {
                "lanewise": lambda x, w, b: batched.batched_linear_act(x, w, b, "gelu"),
                "triton": ours,
                "eager": lambda x, w, b: batched.reference(x, w, b, "gelu"),
                "mm alone": lambda x, w, b: torch.bmm(x, w.transpose(1, 2)),
            },
            cost.batched_linear_cost(b, m, n, k, 2),
            lambda x, w, b: batched.reference(x.float(), w.float(), b.float(), "gelu"),
            compiled=("compile", "max-autotune"),
            tune=("batched", (b, m, n, k, BF16), TILES),
            shape={"b": b, "m": m, "n": n, "k": k},
        )
