"""Triton kernels that earn their place: used where they were measured faster, the plain expression everywhere else.

    softmax(x, scale, mask)                      one pass over memory, rows to 2^20 columns
    rms_norm, layer_norm(x, w, ...)              forward and backward
    add_rms_norm, add_layer_norm(x, residual)    residual addition fused in, both results returned
    pointwise(expression)                        a chain of pointwise operations as one kernel
    silu_mul, gelu_mul, bias_gelu, ...           the chains that models are made of
    linear_act(x, w, bias, activation)           a linear layer with its epilogue, by the fastest exact path
    batched_linear_act(x, w, bias, activation)   a linear layer for each matrix of a batch, with its epilogue
    gated_linear(x, gate, up)                    gate and up projection with SiLU * mul or GELU * mul
    gated_mlp(x, gate, up, down)                 these and the projection back, for few rows in two launches
    mlp(x, w1, b1, w2, b2)                       a narrow MLP in one kernel
    to_channels_last(x), from_channels_last(x)   images and volumes from one memory format to the other
    convolution_channels_last(x, weight, ...)    a convolution in channels-last memory, contiguous before and after
    counts()                                     how many calls reached a kernel, and why the others did not

torch and triton are imported when the first of these names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lanewise.errors import MissingDependencyError

if TYPE_CHECKING:
    from lanewise.kernels.dispatch.eligibility import counts, reset_counts
    from lanewise.kernels.elementwise import (
        add_autotuned,
        add_masked,
        add_plain,
        bias_gelu,
        bias_gelu_tanh,
        bias_relu,
        bias_silu,
        gelu_mul,
        gelu_tanh_mul,
        residual_add,
        residual_scale_add,
        silu_mul,
    )
    from lanewise.kernels.gemm.batched_linear import batched_linear_act
    from lanewise.kernels.gemm.dual_gemm import gated_linear
    from lanewise.kernels.gemm.fused_gated_mlp import gated_mlp
    from lanewise.kernels.gemm.fused_mlp import mlp
    from lanewise.kernels.gemm.gemm_epilogue import linear_act
    from lanewise.kernels.layouts.convolution import convolution_channels_last
    from lanewise.kernels.layouts.memory_format import from_channels_last, to_channels_last
    from lanewise.kernels.pointwise_chain import pointwise
    from lanewise.kernels.rows.add_layer_norm import add_layer_norm
    from lanewise.kernels.rows.add_rms_norm import add_rms_norm
    from lanewise.kernels.rows.layer_norm import layer_norm
    from lanewise.kernels.rows.rms_norm import rms_norm
    from lanewise.kernels.rows.softmax import softmax

_HOMES: dict[str, str] = {
    **dict.fromkeys(
        (
            "add_autotuned",
            "add_masked",
            "add_plain",
            "bias_gelu",
            "bias_gelu_tanh",
            "bias_relu",
            "bias_silu",
            "gelu_mul",
            "gelu_tanh_mul",
            "residual_add",
            "residual_scale_add",
            "silu_mul",
        ),
        "elementwise",
    ),
    "add_layer_norm": "rows.add_layer_norm",
    "add_rms_norm": "rows.add_rms_norm",
    "batched_linear_act": "gemm.batched_linear",
    "convolution_channels_last": "layouts.convolution",
    "counts": "dispatch.eligibility",
    "from_channels_last": "layouts.memory_format",
    "gated_linear": "gemm.dual_gemm",
    "gated_mlp": "gemm.fused_gated_mlp",
    "layer_norm": "rows.layer_norm",
    "linear_act": "gemm.gemm_epilogue",
    "mlp": "gemm.fused_mlp",
    "pointwise": "pointwise_chain",
    "reset_counts": "dispatch.eligibility",
    "rms_norm": "rows.rms_norm",
    "softmax": "rows.softmax",
    "to_channels_last": "layouts.memory_format",
}

__all__ = [
    "add_autotuned",
    "add_layer_norm",
    "add_masked",
    "add_plain",
    "add_rms_norm",
    "batched_linear_act",
    "bias_gelu",
    "bias_gelu_tanh",
    "bias_relu",
    "bias_silu",
    "convolution_channels_last",
    "counts",
    "from_channels_last",
    "gated_linear",
    "gated_mlp",
    "gelu_mul",
    "gelu_tanh_mul",
    "layer_norm",
    "linear_act",
    "mlp",
    "pointwise",
    "reset_counts",
    "residual_add",
    "residual_scale_add",
    "rms_norm",
    "silu_mul",
    "softmax",
    "to_channels_last",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("triton")
        module = importlib.import_module(f"{__name__}.{home}")
        importlib.import_module(f"{__name__}.torch_operators")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise MissingDependencyError(f"the kernels need {error.name}: pip install {error.name}") from None
    return getattr(module, name)
