"""Call every kernel once on edge shapes: a short program to run under `compute-sanitizer`.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python -m benchmarks.kernels.edges

Odd lengths, one row, one column, unaligned starts, wide strides, rows shared by programs, partial tiles. Without the
caching allocator every tensor is an allocation of its own, so that a read or a write past its end is seen. Results are
compared with PyTorch's as well; the program ends with the number of calls.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from lanewise import kernels
from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import eligibility as guard
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.gemm import batched_linear as batched
from lanewise.kernels.gemm import dual_gemm, gemm_epilogue, matmul
from lanewise.kernels.gemm import fused_gated_mlp as gated_mlps
from lanewise.kernels.gemm import fused_mlp as mlps
from lanewise.kernels.gemm.matmul import SkinnyBlocks, TileBlocks
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes
from lanewise.kernels.rows.row_layout import Layout, next_power_of_2, use_layout

BF16 = torch.bfloat16
functional = torch.nn.functional


def _randn(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def _rows() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    for rows, cols in ((1, 1), (3, 17), (5, 1000), (2, 4099), (3, 16385), (2, 40001), (3, 70001)):
        x, r, w, b = _randn(rows, cols), _randn(rows, cols), _randn(cols), _randn(cols)
        mask = torch.rand(rows, cols, device="cuda") < 0.7
        mask[:, 0] = True
        name = f"{rows}x{cols}"
        yield f"softmax {name}", lambda x=x: kernels.softmax(x), lambda x=x: softmaxes.reference(x)
        yield (
            f"softmax masked {name}",
            lambda x=x, m=mask: kernels.softmax(x, 0.5, m),
            lambda x=x, m=mask: softmaxes.reference(x, 0.5, m),
        )
        yield (
            f"layer_norm {name}",
            lambda x=x, w=w, b=b: kernels.layer_norm(x, w, b),
            lambda x=x, w=w, b=b: layer_norms.reference(x, w, b),
        )
        yield (
            f"rms_norm {name}",
            lambda x=x, w=w: kernels.rms_norm(x, w),
            lambda x=x, w=w: rms_norms.reference(x, w),
        )
        yield (
            f"add_rms_norm {name}",
            lambda x=x, r=r, w=w: kernels.add_rms_norm(x, r, w)[0],
            lambda x=x, r=r, w=w: rms_norms.reference(x + r, w),
        )
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_(), b.clone().requires_grad_()]
        yield (
            f"layer_norm backward {name}",
            lambda v=leaves, dy=r: torch.autograd.grad(kernels.layer_norm(*v), v, dy),
            lambda v=leaves, dy=r: torch.autograd.grad(layer_norms.reference(*v), v, dy),
        )
        yield (
            f"rms_norm backward {name}",
            lambda v=leaves[:2], dy=r: torch.autograd.grad(kernels.rms_norm(*v), v, dy),
            lambda v=leaves[:2], dy=r: torch.autograd.grad(rms_norms.reference(*v), v, dy),
        )
        yield (
            f"softmax backward {name}",
            lambda v=leaves[0], dy=r: torch.autograd.grad(kernels.softmax(v), v, dy),
            lambda v=leaves[0], dy=r: torch.autograd.grad(softmaxes.reference(v), v, dy),
        )


def _twice() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Rows walked twice, whatever the default for their length is; mean and variance in one reduction."""
    for rows, cols, shape in (
        (3, 9001, Layout(2, 4096, 0, 8)),
        (5, 16384, Layout(4, 2048, 0, 8)),
        (1, 70001, Layout(1, 8192, 0, 16)),
    ):
        x, r, w, b = _randn(rows, cols), _randn(rows, cols), _randn(cols), _randn(cols)
        for kernel in ("rms_norm", "layer_norm"):
            for add in (False, True):
                use_layout(kernel, (BF16, cols, add), shape)
        for kernel in ("softmax", "softmax_backward"):
            use_layout(kernel, (BF16, cols), replace(shape, stages=2))
        name = f"walked twice {rows}x{cols}"
        yield f"softmax {name}", lambda x=x: kernels.softmax(x), lambda x=x: softmaxes.reference(x)
        yield (
            f"layer_norm {name}",
            lambda x=x, w=w, b=b: kernels.layer_norm(x, w, b),
            lambda x=x, w=w, b=b: layer_norms.reference(x, w, b),
        )
        yield (
            f"add_rms_norm {name}",
            lambda x=x, r=r, w=w: kernels.add_rms_norm(x, r, w)[0],
            lambda x=x, r=r, w=w: rms_norms.reference(x + r, w),
        )
        leaf = x.clone().requires_grad_()
        yield (
            f"softmax backward {name}",
            lambda v=leaf, dy=r: torch.autograd.grad(kernels.softmax(v), v, dy),
            lambda v=leaf, dy=r: torch.autograd.grad(softmaxes.reference(v), v, dy),
        )
    for cols in (1, 31, 33, 1000):
        x, w, b = _randn(3, cols), _randn(cols), _randn(cols)
        use_layout("layer_norm", (BF16, cols, False), Layout(1, max(next_power_of_2(cols), 16), 1, 4, once=True))
        yield (
            f"layer_norm in one reduction 3x{cols}",
            lambda x=x, w=w, b=b: kernels.layer_norm(x, w, b),
            lambda x=x, w=w, b=b: layer_norms.reference(x, w, b),
        )
    tuning.forget()


def _elements() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    flat = _randn(5003)
    for start, n in ((0, 1), (0, 1023), (1, 4000), (3, 5000)):
        a = flat[start : start + n]
        yield f"add from {start}", lambda a=a: kernels.add_masked(a, a), lambda a=a: a + a
        yield f"silu_mul from {start}", lambda a=a: kernels.silu_mul(a, a), lambda a=a: functional.silu(a) * a
    wide, bias = _randn(7, 130)[:, ::2], _randn(65)
    yield "bias_gelu strided", lambda: kernels.bias_gelu(wide, bias), lambda: functional.gelu(wide + bias)


def _products() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    for m, n, k in ((1, 520, 1096), (33, 72, 136), (200, 136, 72), (300, 520, 264)):
        x, w, up, bias, more = _randn(m, k), _randn(n, k) / k**0.5, _randn(n, k) / k**0.5, _randn(n), _randn(m, n)

        def ours(x: Any = x, w: Any = w, bias: Any = bias, more: Any = more) -> torch.Tensor:
            out = torch.empty_like(more)
            if x.shape[0] <= 64:
                blocks = SkinnyBlocks(64 if x.shape[0] > 16 else 16, 32, 128, 3, 4, 3)
                matmul.skinny(x, w, None, bias, more, ACTIVATIONS["gelu"], out, blocks)
            else:
                matmul.tiles(x, w, None, bias, more, ACTIVATIONS["gelu"], out, TileBlocks(128, 128, 64, 8, 3))
            return out

        yield (
            f"linear {m}x{n}x{k}",
            ours,
            lambda x=x, w=w, b=bias, r=more: gemm_epilogue.reference(x, w, b, "gelu", r),
        )
        yield (
            f"gated {m}x{n}x{k}",
            lambda x=x, w=w, up=up: kernels.gated_linear(x, w, up),
            lambda x=x, w=w, up=up: dual_gemm.reference(x, w, up),
        )
    for m, d, h, o in ((1, 264, 520, 136), (7, 72, 1000, 264)):
        given = (_randn(m, d), _randn(h, d) / d**0.5, _randn(h, d) / d**0.5, _randn(o, h) / h**0.5)
        yield (
            f"gated mlp {m} rows {d}-{h}-{o}",
            lambda v=given: gated_mlps.gated_mlp(*v),
            lambda v=given: gated_mlps.reference(*v),
        )
    for b, m, n, k in ((3, 130, 136, 72), (2, 1, 8, 8)):
        x, w, bias = _randn(b, m, k), _randn(b, n, k) / k**0.5, _randn(b, n)

        def each(x: Any = x, w: Any = w, bias: Any = bias) -> torch.Tensor:
            out = torch.empty(*x.shape[:2], w.shape[1], device="cuda", dtype=BF16)
            batched.batched_into(x, w, bias, ACTIVATIONS["gelu"], out, batched.batched_blocks(*out.shape[1:]))
            return out

        yield f"batch {b}x{m}x{n}x{k}", each, lambda x=x, w=w, b=bias: batched.reference(x, w, b, "gelu")
    for d, h, o, m in ((64, 64, 64, 100), (40, 96, 24, 65), (64, 256, 64, 130)):
        given = (_randn(m, d), _randn(h, d) / d**0.5, _randn(h), _randn(o, h) / h**0.5, _randn(o))
        yield f"mlp {d}-{h}-{o} x{m}", lambda v=given: kernels.mlp(*v), lambda v=given: mlps.reference(*v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="regular expression that the name of a call must hold")
    options = parser.parse_args()
    torch.manual_seed(0)
    guard.train_from_elements = 0
    mlps.measured_only = False
    calls = 0
    wrong: list[str] = []
    for cases in (_elements(), _products(), _twice(), _rows()):
        for name, ours, reference in cases:
            if not re.search(options.match, name):
                continue
            got, want = ours(), reference()
            torch.cuda.synchronize()
            calls += 1
            gots, wants = ((v,) if isinstance(v, torch.Tensor) else v for v in (got, want))
            for mine, true in zip(gots, wants, strict=True):
                apart = (mine.float() - true.float()).abs().max() / true.float().abs().max().clamp_min(1e-6)
                if not apart < 4e-2:
                    wrong.append(f"{name}: {apart.item():.3g}")
    print(f"{calls} calls, {len(wrong)} apart from PyTorch's result", *wrong, sep="\n")
    print(kernels.counts())
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
