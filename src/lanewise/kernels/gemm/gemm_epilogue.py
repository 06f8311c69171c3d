"""A linear layer with what follows it fused in: bias, activation, residual.

`linear_act(x, w, bias, activation, residual)` is `act(x @ w.T + bias) + residual` for x [..., k], w [n, k] (the
layout of `nn.Linear`). It calls whatever was measured fastest for the shape and is exact: cuBLAS with its own
epilogue (`torch._addmm_activation`, which knows ReLU and the tanh form of GELU only), cuBLAS followed by a pointwise
kernel, or the Triton kernels of `lanewise.kernels.gemm.matmul`. `route` says which, and why; nothing is approximated to
get onto a faster path. The bound on any gain is the epilogue's own traffic: the product alone is cuBLAS's to win.

FLOP: 2 m n k; bytes: x, w, bias, residual and out once. Inference only; gradients run the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED
from lanewise.kernels.gemm.matmul import SkinnyBlocks, TileBlocks, product
from lanewise.kernels.rows.row_layout import as_rows, next_power_of_2

__all__ = ["Route", "linear_act", "reference", "route"]


@dataclass(frozen=True, slots=True)
class Route:
    """Which implementation a call takes: "cublas epilogue", "tiles", "skinny" or "eager", and the reason."""

    path: str
    why: str


def reference(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """The plain PyTorch expression that the fused paths stand in for (and the fallback)."""
    functional = torch.nn.functional
    out = functional.linear(x, w, bias)
    if activation == "gelu_tanh":
        out = functional.gelu(out, approximate="tanh")
    elif activation is not None:
        out = getattr(functional, activation)(out)
    return out if residual is None else out + residual


def skinny_blocks(m: int, n: int, k: int, dual: bool = False) -> SkinnyBlocks:
    """Default cut for small m; no split of k won where n / 32 programs fill the card. Small weights and very few rows
    take more parts, and for gate and up narrower tiles (docs/kernels.md, the gated MLP)."""
    bm = max(next_power_of_2(m), 16)
    split = 1
    if bm == 16 and n * k <= 1 << 24:
        while not dual and -(-n // 32) * split < 256 and split < 8 and k // (split * 2) >= 256:
            split *= 2
        return SkinnyBlocks(bm, 32, 256, split, 4, 3)
    while -(-n // 32) * split < 96 and split < 8 and k // (split * 2) >= 512:
        split *= 2
    if dual:
        return SkinnyBlocks(bm, 64, 128, split, 4, 3) if bm == 16 else SkinnyBlocks(bm, 64, 64, split, 4, 6)
    return SkinnyBlocks(bm, 32, 256, split, 4, 3)


def tile_blocks(m: int, n: int) -> TileBlocks:
    """Default tile: 128 x 256 in flattened loops, stored in halves; two programs of 128 x 128 for few tiles and for very
    many."""
    if m * n <= 2048 * 2048 or m * n >= 8192 * 8192:
        return TileBlocks(128, 128, 64, 4, 3, 8, 2, True, False, 2)
    return TileBlocks(128, 256, 64, 8, 4, 16, 2, True)


def route(m: int, n: int, k: int, dtype: torch.dtype, bias: bool, activation: str | None, residual: bool) -> Route:
    """Where a product of that shape goes on this card.

    The default is cuBLAS: with its own epilogue where that computes the activation asked for, followed by eager
    operators otherwise. A Triton kernel is taken only for shapes where `benchmarks.kernels` (`--keep`) measured it
    faster on this card, or in the region measured on the reference card (see docs/kernels.md).
    """
    if bias and not residual and activation == "gelu_tanh" and dtype == torch.bfloat16 and _ahead_of_cublas(m, n, k):
        default = Route("tiles", "two programs a multiprocessor beat cuBLAS and its epilogue")
    elif bias and not residual and activation in ("relu", "gelu_tanh") and dtype != torch.float32:
        default = Route("cublas epilogue", "cuBLAS computes this epilogue itself")
    elif bias and not residual and activation == "gelu" and dtype == torch.bfloat16 and _measured(m, n, k):
        default = Route("skinny" if m <= 64 else "tiles", "cuBLAS has no epilogue for the exact GELU")
    else:
        default = Route("eager", "no measured shape where a fused kernel beats cuBLAS and eager")
    if dtype == torch.float32:
        return default
    return tuning.pick("linear_act", (m, n, k, dtype, activation), default)


def _ahead_of_cublas(m: int, n: int, k: int) -> bool:
    """Where the fused tanh GELU beat cuBLAS with that epilogue by 2 % or more on an H200 (on an H100 it does not)."""
    if INTERPRETED or not torch.cuda.is_available() or "H200" not in torch.cuda.get_device_name():
        return False
    return m >= 8192 and n >= 8192 and 4096 <= k <= 8192


def _measured(m: int, n: int, k: int) -> bool:
    """Where the fused exact GELU beat the best other path by 2 % or more on an H100: see docs/kernels.md."""
    if INTERPRETED or torch.cuda.get_device_capability() != (9, 0):
        return False
    if m <= 64:  # behind cuBLAS and eager on an H200
        few = 2048 <= n <= 8192 and 2048 <= k <= 8192 and m > 16
        return few and "H100" in torch.cuda.get_device_name()
    return m >= 2048 and n >= 2048 and 2048 <= k <= 4096


def linear_act(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """act(x @ w.T + bias) + residual by the fastest exact path known for the shape."""
    refused = _refuse(x, w, bias, activation, residual)
    if refused is not None:
        fell_back("linear_act", refused)
        return reference(x, w, bias, activation, residual)
    flat = as_rows(x)
    m, k = flat.shape
    n = w.shape[0]
    path = route(m, n, k, x.dtype, bias is not None, activation, residual is not None).path
    if path == "eager" or not eager() or m == 0 or n == 0:
        fell_back("linear_act", "cuBLAS and eager are as fast here")
        return reference(x, w, bias, activation, residual)
    shape = (*x.shape[:-1], n)
    if path == "cublas epilogue":
        hit("linear_act")
        assert bias is not None
        fused = torch._addmm_activation  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        return fused(bias, flat, w.t(), use_gelu=activation == "gelu_tanh").view(shape)
    hit("linear_act")
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    more = None if residual is None else residual.contiguous().view(m, n)
    code = ACTIVATIONS[activation]
    default = skinny_blocks(m, n, k) if path == "skinny" else tile_blocks(m, n)
    product(flat, w, None, bias, more, code, out.view(m, n), tuning.pick(path, (m, n, k, x.dtype, False), default))
    return out


def _refuse(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    residual: torch.Tensor | None,
) -> str | None:
    refused = refuse_tensor(x, w, bias, residual)
    if refused is not None:
        return refused
    if activation not in ACTIVATIONS:
        return "activation"
    if wants_grad(x, w, bias, residual):
        return "needs gradients"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    if len({t.dtype for t in (x, w, bias, residual) if t is not None}) > 1:
        return "mixed dtypes"
    if x.dim() == 0 or w.dim() != 2 or w.shape[1] != x.shape[-1] or x.shape[-1] == 0:
        return "shape"
    if bias is not None and bias.shape != w.shape[:1]:
        return "shape"
    if residual is not None and residual.shape != (*x.shape[:-1], w.shape[0]):
        return "shape"
    if not w.is_contiguous() or (bias is not None and not bias.is_contiguous()):
        return "weight layout"
    if not INTERPRETED and (w.data_ptr() % 16 or x.data_ptr() % 16 or x.shape[-1] % 8 or w.shape[0] % 8):
        return "alignment"
    return None
