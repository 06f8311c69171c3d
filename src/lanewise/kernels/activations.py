"""Activations as device functions, on fp32 values: shared by pointwise chains, GEMM epilogues and the fused MLP.

`gelu_tanh(x)` is `x * sigmoid(2u)` with u = sqrt(2/pi) (x + 0.044715 x^3), which equals 0.5 x (1 + tanh u) and needs
one exponential and one reciprocal. `fast_gelu_tanh` uses the hardware's `tanh.approx.f32` (one special-function
operation, relative error below 2^-10.9, a quarter of the rounding step of bf16) and `fast_exact_gelu` a short formula
for erf; only kernels that round to half precision right away use them.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "ACTIVATIONS",
    "activate",
    "exact_gelu",
    "fast_activate",
    "gelu_tanh",
    "relu",
    "sigmoid",
    "silu",
    "tanh",
]

ACTIVATIONS: dict[str | None, int] = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
"""Names that the public functions take, and the constexpr that stands for each."""


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))


@triton.jit
def tanh(x):
    # exp2 of the absolute value cannot overflow into inf / inf.
    e = tl.exp2(tl.abs(x) * -2.8853900817779268)
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
def relu(x):
    # Not maximum(x, 0): NaN must stay NaN.
    return tl.where(x < 0, 0.0, x)


@triton.jit
def silu(x):
    return x * sigmoid(x)


@triton.jit
def exact_gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh(x):
    return x * sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x * x))


@triton.jit
def _hardware_tanh(x):
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_gelu_tanh(x):
    half = 0.5 * x
    return half + half * _hardware_tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x))


@triton.jit
def fast_silu(x):
    half = 0.5 * x
    return half + half * _hardware_tanh(half)


@triton.jit
def fast_exact_gelu(x):
    # Phi(x) = erfc(-x / sqrt 2) / 2 by formula 7.1.26 of Abramowitz and Stegun (absolute error of erf below 1.5e-7):
    # two special-function operations and seven multiply-adds, where the library's erf takes some forty instructions.
    z = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = poly * tl.exp2(z * z * -1.4426950408889634)
    return 0.5 * x * tl.where(x < 0, tail, 2.0 - tail)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        x = relu(x)
    elif ACTIVATION == 2:
        x = exact_gelu(x)
    elif ACTIVATION == 3:
        x = gelu_tanh(x)
    elif ACTIVATION == 4:
        x = silu(x)
    return x


@triton.jit
def fast_activate(x, ACTIVATION: tl.constexpr, FAST: tl.constexpr):
    """`activate` by shorter formulas, where FAST says that the result is rounded to half precision anyway."""
    if FAST and ACTIVATION == 2:
        x = fast_exact_gelu(x)
    elif FAST and ACTIVATION == 3:
        x = fast_gelu_tanh(x)
    elif FAST and ACTIVATION == 4:
        x = fast_silu(x)
    else:
        x = activate(x, ACTIVATION)
    return x
