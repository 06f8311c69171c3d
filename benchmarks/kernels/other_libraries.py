"""Kernels of other libraries as arms of the measurement, where they are installed: Liger Kernel.

Each is called through the library's public function, without gradients. Absent libraries give no arm.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["liger"]

_WIDEST = 65536  # columns, Liger's own limit


def liger(operator: str, cols: int = 0) -> dict[str, Callable[..., Any]]:
    """`{"liger": function}` for `operator`, or nothing where Liger is absent or does not take rows of `cols`."""
    if cols > _WIDEST:
        return {}
    try:
        module = importlib.import_module(f"liger_kernel.ops.{_MODULES[operator]}")
    except Exception:  # absent, or installed for another version of Triton
        return {}
    return {"liger": _ARMS[operator](module)}


_MODULES = {
    "softmax": "softmax",
    "rms_norm": "rms_norm",
    "layer_norm": "layer_norm",
    "add_rms_norm": "fused_add_rms_norm",
    "silu_mul": "swiglu",
    "gelu_tanh_mul": "geglu",
}
_ARMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "softmax": lambda m: lambda x: m.LigerSoftmaxFunction.apply(x),
    "rms_norm": lambda m: lambda x, w, b: m.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False),
    "layer_norm": lambda m: lambda x, w, b: m.LigerLayerNormFunction.apply(x, w, b, 1e-5),
    "add_rms_norm": lambda m: lambda x, r, w: m.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False),
    "silu_mul": lambda m: lambda g, u: m.LigerSiLUMulFunction.apply(g, u),
    "gelu_tanh_mul": lambda m: lambda g, u: m.LigerGELUMulFunction.apply(g, u),
}
