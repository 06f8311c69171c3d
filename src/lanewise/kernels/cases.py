"""What `lanewise bench kernels` measures: shapes, the arms that compete on each, the exact result, the cost.

An arm is a callable over one input set. `eager` is what a user writes, `lanewise` what this library offers, `compile`
and `max-autotune` are torch.compile of the eager arm (default mode and max-autotune-no-cudagraphs), the rest is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lanewise.kernels import (
    batched,
    cost,
    dual_gemm,
    elementwise,
    gated_mlps,
    gemm_epilogue,
    layer_norms,
    mlps,
    rms_norms,
    softmaxes,
    tuning,
)
from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.cost import Cost
from lanewise.kernels.dual_gemm import gated_blocks
from lanewise.kernels.gemm_epilogue import skinny_blocks, tile_blocks
from lanewise.kernels.matmul import SkinnyBlocks, TileBlocks, product
from lanewise.kernels.mlps import Blocks
from lanewise.kernels.norms_backward import norm_backward
from lanewise.kernels.others import liger
from lanewise.kernels.pointwise_chain import PointBlocks, pointwise
from lanewise.kernels.rowwise import Layout, next_power_of_2
from lanewise.kernels.softmaxes import softmax_gradient

__all__ = ["GROUPS", "Case", "cases", "error"]

BF16 = torch.bfloat16
_F = torch.nn.functional


@dataclass(frozen=True)
class Case:
    """One shape of one kernel."""

    group: str
    name: str
    make: Callable[[int], tuple[Any, ...]]
    arms: dict[str, Callable[..., Any]]
    cost: Cost
    exact: Callable[..., Any]
    """Result in fp32 or fp64 from the same inputs."""
    compiled: tuple[str, ...] = ("compile",)
    """Which torch.compile modes compete: "compile", "max-autotune"."""
    tune: tuple[str, Any, tuple[Any, ...]] | None = None
    """Kernel name, key and candidate configurations for the tuner."""
    dtypes: str = "bf16"
    shape: dict[str, int] = field(default_factory=dict[str, int])


def error(got: Any, want: Any) -> float:
    """max |got - want| / max |want| over all outputs; infinite when the non-finite entries differ."""
    worst = 0.0
    gots = got if isinstance(got, tuple | list) else (got,)
    wants = want if isinstance(want, tuple | list) else (want,)
    for mine, true in zip(gots, wants, strict=True):
        if mine is None or true is None:
            continue
        a, b = mine.double(), true.double()
        if not torch.equal(a.isfinite(), b.isfinite()):
            return float("inf")
        a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item())
    return worst


def _randn(*shape: int, seed: int, scale: float = 1.0, dtype: torch.dtype = BF16) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(*shape, device="cuda", generator=generator) * scale).to(dtype)


ROW_SHAPES = (
    (32768, 1024),
    (16384, 2048),
    (8192, 4096),
    (8192, 8192),
    (4096, 16384),
    (2048, 32768),
    (2048, 65536),
    (1024, 131072),
    (512, 262144),
)


def _row_layouts(cols: int, kernel: str = "softmax") -> tuple[Layout, ...]:
    """Candidates for the tuner; what lost everywhere on an H200 is gone (benchmarks/results)."""
    block = next_power_of_2(cols)

    def whole(warps: int, rows: int = 1, registers: int = 0, **more: bool) -> Layout:
        return Layout(rows, block, 1, warps, registers=registers, stream=False, **more)

    def split(part: int, warps: int, rows: int = 1, registers: int = 0) -> Layout:
        return Layout(rows, part, max(-(-cols // part), 1), warps, registers=registers, stream=False)

    def parts(part: int, inner: int, warps: int) -> Layout:
        return Layout(1, part, -(-cols // part), warps, inner=inner, stream=False)

    def twice(rows: int, part: int, warps: int) -> Layout:
        """For softmax `rows` are blocks of its only row taken together."""
        if kernel == "softmax":
            return Layout(1, part // rows, 0, warps, stages=rows)
        return Layout(rows, part, 0, warps)

    mean, norm, add = kernel == "layer_norm", "softmax" not in kernel, kernel == "add_norm"
    once = (whole(2, once=True), whole(1, once=True)) if mean else ()
    if cols <= 2048:
        return (whole(2), whole(1), whole(4), whole(4, 2), *once, *((whole(4, early=True),) if add else ()))
    if cols <= 4096:
        own = (whole(4, once=True), whole(8, once=True)) if mean else (whole(8, early=True),) if add else ()
        return (whole(8), whole(4), *own)
    if cols <= 8192:
        walked = (twice(1, 2048, 8), twice(1, 2048, 16), twice(1, 4096, 16)) if norm and not add else ()
        return (whole(8), whole(4), whole(16), *walked, *((whole(8, early=True), whole(16, early=True)) if add else ()))
    if cols <= 16384:
        loose = (whole(16), whole(8, lean=True), whole(16, early=True)) if norm else (whole(16), whole(8, lean=True))
        return (*loose, twice(1, 2048, 8), twice(1, 2048, 16), twice(1, 4096, 16), twice(1, 4096, 32))
    if kernel == "softmax_backward":
        return (split(8192, 8), split(16384, 16), split(4096, 8), twice(1, 8192, 32), twice(1, 8192, 16))
    if cols <= 32768:
        near = (
            twice(1, 4096, 16),
            twice(2, 8192, 16),
            twice(1, 8192, 32),
            twice(2 if kernel == "softmax" else 1, 16384, 32),
        )
        near = (*near, twice(1, 4096, 32)) if norm else near
        return (whole(16), whole(32, lean=True), *near, parts(16384, 4096, 8), parts(16384, 8192, 16))
    far = (parts(16384, 4096, 8), parts(16384, 8192, 16), parts(32768, 8192, 16))
    own = (parts(16384, 4096, 16), parts(16384, 2048, 8), parts(32768, 8192, 32)) if norm else (parts(16384, 8192, 8),)
    far = (*far, *own)
    if cols <= 65536:
        return (split(8192, 8, 2), split(8192, 8, 1, 48), twice(1, 8192, 32), *far)
    return (*((split(32768, 32, 2),) if add else ()), *far)


def _softmax_cases() -> Iterator[Case]:
    for rows, cols in ROW_SHAPES:
        yield Case(
            "softmax",
            f"softmax {rows}x{cols}",
            lambda i, rows=rows, cols=cols: (_randn(rows, cols, seed=i),),
            {"lanewise": softmaxes.softmax, "eager": lambda x: torch.softmax(x, -1), **liger("softmax", cols)},
            cost.softmax_cost(rows, cols, 2),
            lambda x: torch.softmax(x.float(), -1),
            tune=("softmax", (BF16, cols), _row_layouts(cols)),
            shape={"rows": rows, "cols": cols},
        )


def _norm_cases() -> Iterator[Case]:
    for rows, cols in ROW_SHAPES:

        def make(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return _randn(rows, cols, seed=i), _randn(cols, seed=i + 1), _randn(cols, seed=i + 2)

        shape = {"rows": rows, "cols": cols}
        yield Case(
            "rms_norm",
            f"rms_norm {rows}x{cols}",
            make,
            {
                "lanewise": lambda x, w, b: rms_norms.rms_norm(x, w, 1e-6),
                "eager": lambda x, w, b: rms_norms.reference(x, w, 1e-6),
                **liger("rms_norm", cols),
            },
            cost.norm_cost(rows, cols, 2, rms=True),
            lambda x, w, b: rms_norms.reference(x.float(), w.float(), 1e-6),
            tune=("rms_norm", (BF16, cols, False), _row_layouts(cols, "rms_norm")),
            shape=shape,
        )
        yield Case(
            "layer_norm",
            f"layer_norm {rows}x{cols}",
            make,
            {"lanewise": layer_norms.layer_norm, "eager": layer_norms.reference, **liger("layer_norm", cols)},
            cost.norm_cost(rows, cols, 2, rms=False),
            lambda x, w, b: layer_norms.reference(x.float(), w.float(), b.float()),
            tune=("layer_norm", (BF16, cols, False), _row_layouts(cols, "layer_norm")),
            shape=shape,
        )
        if rows * cols > 1 << 26:
            rows //= 2

        def make_add(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return _randn(rows, cols, seed=i), _randn(rows, cols, seed=i + 7), _randn(cols, seed=i + 1)

        def add_eager(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x + r
            return rms_norms.reference(total, w, 1e-6), total

        def add_exact(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x.float() + r.float()
            return rms_norms.reference(total, w.float(), 1e-6), total

        yield Case(
            "add_rms_norm",
            f"add_rms_norm {rows}x{cols}",
            make_add,
            {
                "lanewise": lambda x, r, w: rms_norms.add_rms_norm(x, r, w, 1e-6),
                "eager": add_eager,
                **liger("add_rms_norm", cols),
            },
            cost.norm_cost(rows, cols, 2, rms=True, residual=True),
            add_exact,
            tune=("rms_norm", (BF16, cols, True), _row_layouts(cols, "add_norm")),
            shape={"rows": rows, "cols": cols},
        )


def _backward_cases() -> Iterator[Case]:
    for rows, cols in ((32768, 1024), (8192, 4096), (4096, 8192), (2048, 16384), (1024, 65536)):

        def make_softmax(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return _randn(rows, cols, seed=i), torch.softmax(_randn(rows, cols, seed=i + 1), -1)

        yield Case(
            "softmax_backward",
            f"softmax backward {rows}x{cols}",
            make_softmax,
            {
                "lanewise": softmax_gradient,
                "eager": lambda dy, y: torch.ops.aten._softmax_backward_data(dy, y, -1, BF16),
            },
            cost.softmax_backward_cost(rows, cols, 2),
            lambda dy, y: (dy.float() - (dy.float() * y.float()).sum(-1, keepdim=True)) * y.float(),
            tune=("softmax_backward", (BF16, cols), _row_layouts(cols, "softmax_backward")),
            shape={"rows": rows, "cols": cols},
        )

        def make_norm(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            x, w = _randn(rows, cols, seed=i), _randn(cols, seed=i + 2)
            mean = x.float().mean(-1)
            rstd = (x.float().var(-1, unbiased=False) + 1e-5).rsqrt()
            root = (x.float().square().mean(-1) + 1e-6).rsqrt()
            return _randn(rows, cols, seed=i + 1), x, w, mean, rstd, root

        def exact_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> tuple[torch.Tensor, ...]:
            dy, x, w, r = dy.float(), x.float(), w.float(), root[:, None]
            xhat, g = x * r, dy * w
            return r * (g - xhat * (g * xhat).mean(-1, keepdim=True)), (dy * xhat).sum(0)

        def exact_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> tuple[torch.Tensor, ...]:
            dy, x, w, r = dy.float(), x.float(), w.float(), rstd[:, None]
            xhat, g = (x - mean[:, None]) * r, dy * w
            dx = r * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
            return dx, (dy * xhat).sum(0), dy.sum(0)

        def eager_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return torch.ops.aten.native_layer_norm_backward(
                dy, x, [x.shape[-1]], mean[:, None], rstd[:, None], w, w, [True, True, True]
            )

        def eager_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return torch.ops.aten._fused_rms_norm_backward(dy, x, [x.shape[-1]], root[:, None], w, [True, True])

        def ours_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return tuple(norm_backward(dy, None, x, w, mean, rstd, False, True, True))

        def ours_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return tuple(norm_backward(dy, None, x, w, root, root, True, True, False))[:2]

        block = next_power_of_2(cols)
        if cols <= 1024:
            layouts = [Layout(2, block, 1, 4, 4), Layout(2, block, 1, 4, 6), Layout(1, block, 1, 2, 8)]
            lean = ((4, 4, 2), (2, 8, 2), (2, 12, 1))
        elif cols <= 4096:
            layouts = [Layout(1, block, 1, 8, 2), Layout(1, block, 1, 8, 3), Layout(1, block, 1, 8, 4)]
            lean = ((8, 2, 2), (8, 3, 1), (8, 4, 1), (16, 2, 2))
        else:
            layouts = [Layout(1, block, 1, 16, 1)] if cols <= 16384 else []
            layouts += [Layout(1, block, 1, 16, 2)] if cols <= 16384 else []
            lean = ((16, 1, 2), (16, 2, 1), (8, 3, 1))
        if cols <= 16384:
            layouts += [Layout(1, block, 1, warps, per_sm, stages, lean=True) for warps, per_sm, stages in lean]
        if cols > 8192:
            layouts.append(Layout(1, 2048, 0, 8))
            cuts = ((4096, 8, 2, 1), (4096, 8, 2, 2), (8192, 16, 1, 1), (8192, 16, 1, 2))
            layouts += [Layout(1, part, -(-cols // part), *cut) for part, *cut in cuts]
        for name, ours, eager, exact in (
            ("rms_norm", ours_rms, eager_rms, exact_rms),
            ("layer_norm", ours_layer, eager_layer, exact_layer),
        ):
            yield Case(
                f"{name}_backward",
                f"{name} backward {rows}x{cols}",
                make_norm,
                {"lanewise": ours, "eager": eager},
                cost.norm_backward_cost(rows, cols, 2, rms=name == "rms_norm"),
                exact,
                tune=("norm_backward", (BF16, cols, name == "rms_norm"), tuple(layouts)),
                shape={"rows": rows, "cols": cols},
            )


def _chain(operations: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        for step in range(operations):
            x = x * 1.001 if step % 2 == 0 else x + 0.001
        return x

    run.__name__ = f"chain_{operations}"
    return run


def _pointwise_cases() -> Iterator[Case]:
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
            lambda i: (_randn(1 << 28, seed=i),),
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
        lambda i: (_randn(8192, 14336, seed=i), _randn(8192, 14336, seed=i + 1)),
        {"lanewise": elementwise.silu_mul, "eager": lambda g, u: _F.silu(g) * u, **liger("silu_mul")},
        cost.pointwise_cost(m * h, 6, 4.0 * m * h, 2.0 * m * h),
        lambda g, u: _F.silu(g.float()) * u.float(),
        tune=("pointwise", (2, 2), blocks),
        shape={"rows": m, "cols": h},
    )
    yield Case(
        "pointwise",
        f"gelu_tanh_mul {m}x{h}",
        lambda i: (_randn(8192, 14336, seed=i), _randn(8192, 14336, seed=i + 1)),
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
        lambda i: (_randn(8192, 14336, seed=i), _randn(14336, seed=i + 1)),
        {"lanewise": elementwise.bias_gelu, "eager": lambda x, b: _F.gelu(x + b)},
        cost.pointwise_cost(m * h, 10, 2.0 * m * h, 2.0 * m * h),
        lambda x, b: _F.gelu(x.float() + b.float()),
        shape={"rows": m, "cols": h},
    )
    yield Case(
        "pointwise",
        "vector add (masked)",
        lambda i: (_randn(1 << 28, seed=i), _randn(1 << 28, seed=i + 1)),
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


def _mlp_cases() -> Iterator[Case]:
    for d, h, m in ((64, 64, 65536), (128, 128, 65536), (64, 256, 8192), (64, 256, 65536), (128, 512, 65536)):

        def make(i: int, d: int = d, h: int = h, m: int = m) -> tuple[Any, ...]:
            return (
                _randn(m, d, seed=i),
                _randn(h, d, seed=i + 1, scale=d**-0.5),
                _randn(h, seed=i + 2),
                _randn(d, h, seed=i + 3, scale=h**-0.5),
                _randn(d, seed=i + 4),
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


def _plain_cases() -> Iterator[Case]:
    for m, n, k in ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 16384, 4096)):
        yield Case(
            "mm",
            f"product {m}x{n}x{k}",
            lambda i, m=m, n=n, k=k: (_randn(m, k, seed=i), _randn(n, k, seed=i + 1, scale=k**-0.5)),
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


def _gemm_cases() -> Iterator[Case]:
    for m, n, k in GEMM_SHAPES:

        def make(i: int, m: int = m, n: int = n, k: int = k) -> tuple[Any, ...]:
            return _randn(m, k, seed=i), _randn(n, k, seed=i + 1, scale=k**-0.5), _randn(n, seed=i + 2)

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


def _dual_cases() -> Iterator[Case]:
    n, k = 14336, 4096
    for m in (1, 8, 64, 512, 2048, 8192):

        def make(i: int, m: int = m) -> tuple[Any, ...]:
            return (
                _randn(m, 4096, seed=i),
                _randn(14336, 4096, seed=i + 1, scale=1 / 64),
                _randn(14336, 4096, seed=i + 2, scale=1 / 64),
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


def _batched_cases() -> Iterator[Case]:
    for b, m, n, k in ((64, 1024, 1024, 64), (32, 2048, 1024, 256), (16, 4096, 2048, 512), (8, 4096, 4096, 1024)):

        def make(i: int, b: int = b, m: int = m, n: int = n, k: int = k) -> tuple[Any, ...]:
            weight = _randn(b, n, k, seed=i + 1, scale=k**-0.5)
            return _randn(b, m, k, seed=i), weight, _randn(b, n, seed=i + 2)

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


def _gated_mlp_cases() -> Iterator[Case]:
    for d, h in ((4096, 14336), (2048, 5632), (1024, 2816)):
        for m in (1, 8):

            def make(i: int, m: int = m, d: int = d, h: int = h) -> tuple[Any, ...]:
                weights = ((h, d), (h, d), (d, h))
                return (
                    _randn(m, d, seed=i),
                    *(_randn(*s, seed=i + 1 + n, scale=s[1] ** -0.5) for n, s in enumerate(weights)),
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


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "pointwise": _pointwise_cases,
    "softmax": _softmax_cases,
    "norm": _norm_cases,
    "backward": _backward_cases,
    "mlp": _mlp_cases,
    "mm": _plain_cases,
    "gemm": _gemm_cases,
    "gated_linear": _dual_cases,
    "batched": _batched_cases,
    "gated_mlp": _gated_mlp_cases,
}


def cases(groups: tuple[str, ...] = (), match: str = "") -> list[Case]:
    """The cases of the groups (all by default) whose name holds the regular expression `match`."""
    return [case for name in (groups or tuple(GROUPS)) for case in GROUPS[name]() if re.search(match, case.name)]
