"""The kernels as registered operators, so that torch.compile, export, fake tensors and FlopCounterMode see through
them.

Most are a `torch.library.triton_op`: the body is what runs, what is traced (the Triton kernels are inlined into the
compiled code) and what computes shapes on fake tensors; gradients are operators too; the FLOP formulas are those of
`lanewise.kernels.cost`. The convolution and the split product are plain custom operators: the compiler, which would choose
layouts of its own, does not look into the one, and which kernel computes the other depends on settings at the time of the
call. Plain eager calls do not come here: the dispatcher's price for a custom operator is more than that
of the launch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.library import custom_op, triton_op
from torch.utils.flop_counter import flop_registry, register_flop_formula

from lanewise.kernels import cost
from lanewise.kernels.gemm.fused_mlp import mlp_into
from lanewise.kernels.gemm.split_product import split_product
from lanewise.kernels.layouts.convolution import convolved, convolved_shape
from lanewise.kernels.rows.norm_backward import norm_backward
from lanewise.kernels.rows.norm_forward import norm_forward
from lanewise.kernels.rows.softmax import softmax_backward_into, softmax_into

__all__ = ["register"]

_CONVOLUTION = (
    "Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
    "SymInt[] output_padding, SymInt groups"
)

# Torch reads the parameter types to build the schemas: they must be real objects, so annotations are not postponed here.


def _softmax(x: torch.Tensor, scale: float, mask: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_into(x, out, scale, mask, traced=True)
    return out


def _softmax_backward(dy: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    softmax_backward_into(dy, y, dx, scale, traced=True)
    return dx


def _rms_norm(x: torch.Tensor, w: torch.Tensor | None, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    out = norm_forward(x, None, w, None, eps, rms=True, save=True, traced=True)
    return out.y, out.rstd


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    out = norm_forward(x, residual, w, None, eps, rms=True, save=True, traced=True)
    return out.y, out.total, out.rstd


def _layer_norm(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    out = norm_forward(x, None, w, b, eps, rms=False, save=True, traced=True)
    return out.y, out.mean, out.rstd


def _add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    out = norm_forward(x, residual, w, b, eps, rms=False, save=True, traced=True)
    return out.y, out.total, out.mean, out.rstd


def _norm_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    rms: bool,
    need_w: bool,
    need_b: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grads = norm_backward(dy, ds, x, w, mean, rstd, rms, need_w, need_b, traced=True)
    none = x.new_empty(0)
    return grads.dx, none if grads.dw is None else grads.dw, x.new_empty(0) if grads.db is None else grads.db


def _mlp(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    y = torch.empty((*x.shape[:-1], w2.shape[0]), dtype=x.dtype, device=x.device)
    mlp_into(x, w1, b1, w2, b2, activation, y, traced=True)
    return y


def _split_product_shape(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def _rows_cols(shape: Sequence[int]) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1]


def _save_softmax(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.scale = inputs[1]


def _grad_softmax(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    (y,) = ctx.saved_tensors
    return torch.ops.lanewise.softmax_backward(dy, y, ctx.scale), None, None


def _save_norm(ctx: Any, x: torch.Tensor, w: Any, mean: torch.Tensor, rstd: torch.Tensor) -> None:
    ctx.save_for_backward(x.contiguous(), w, mean, rstd)


def _save_rms(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _save_norm(ctx, inputs[0], inputs[1], output[1], output[1])


def _save_add_rms(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _save_norm(ctx, output[1], inputs[2], output[2], output[2])


def _save_layer(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _save_norm(ctx, inputs[0], inputs[1], output[1], output[2])
    ctx.has_b = inputs[2] is not None


def _save_add_layer(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _save_norm(ctx, output[1], inputs[2], output[2], output[3])
    ctx.has_b = inputs[3] is not None


def _grad_norm(ctx: Any, dy: torch.Tensor, ds: torch.Tensor | None, rms: bool) -> tuple[Any, Any, Any]:
    x, w, mean, rstd = ctx.saved_tensors
    need_w, need_b = w is not None, not rms and ctx.has_b
    dx, dw, db = torch.ops.lanewise.norm_backward(dy, ds, x, w, mean, rstd, rms, need_w, need_b)
    return dx, dw if need_w else None, db if need_b else None


def _grad_rms(ctx: Any, dy: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    dx, dw, _db = _grad_norm(ctx, dy, None, True)
    return dx, dw, None


def _grad_add_rms(ctx: Any, dy: torch.Tensor, ds: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    dx, dw, _db = _grad_norm(ctx, dy, ds, True)
    return dx, dx, dw, None


def _grad_layer(ctx: Any, dy: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    dx, dw, db = _grad_norm(ctx, dy, None, False)
    return dx, dw, db, None


def _grad_add_layer(ctx: Any, dy: torch.Tensor, ds: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    dx, dw, db = _grad_norm(ctx, dy, ds, False)
    return dx, dx, dw, db, None


def register() -> None:
    """Define the operators `torch.ops.lanewise.*`; called once, when a kernel is first imported."""
    operators: dict[str, Any] = {
        "softmax": _softmax,
        "softmax_backward": _softmax_backward,
        "rms_norm": _rms_norm,
        "add_rms_norm": _add_rms_norm,
        "layer_norm": _layer_norm,
        "add_layer_norm": _add_layer_norm,
        "norm_backward": _norm_backward,
        "mlp": _mlp,
    }
    defined: dict[str, Any] = {
        name: triton_op(f"lanewise::{name}", body, mutates_args={}) for name, body in operators.items()
    }
    defined["softmax"].register_autograd(_grad_softmax, setup_context=_save_softmax)
    defined["rms_norm"].register_autograd(_grad_rms, setup_context=_save_rms)
    defined["add_rms_norm"].register_autograd(_grad_add_rms, setup_context=_save_add_rms)
    defined["layer_norm"].register_autograd(_grad_layer, setup_context=_save_layer)
    defined["add_layer_norm"].register_autograd(_grad_add_layer, setup_context=_save_add_layer)

    # With a schema of their own, as what computes them has its annotations postponed.
    for name, takes, body, shape in (
        ("split_product", "Tensor a, Tensor b, Tensor? bias=None", split_product, _split_product_shape),
        ("convolution_channels_last", _CONVOLUTION, convolved, convolved_shape),
    ):
        operator: Any = custom_op(f"lanewise::{name}", body, mutates_args=(), schema=f"({takes}) -> Tensor")
        operator.register_fake(shape)

    ops = torch.ops.lanewise
    of_aten = flop_registry[torch.ops.aten.convolution]
    register_flop_formula([ops.convolution_channels_last], get_raw=True)(of_aten)

    @register_flop_formula([ops.split_product])
    def _(a: Sequence[int], b: Sequence[int], *_: Any, **__: Any) -> int:
        return 2 * a[0] * a[1] * b[1]

    @register_flop_formula([ops.softmax])
    def _(x: Sequence[int], *_: Any, **__: Any) -> int:
        return int(cost.softmax_cost(*_rows_cols(x), 2).flop)

    @register_flop_formula([ops.softmax_backward])
    def _(dy: Sequence[int], *_: Any, **__: Any) -> int:
        return int(cost.softmax_backward_cost(*_rows_cols(dy), 2).flop)

    @register_flop_formula([ops.rms_norm, ops.add_rms_norm])
    def _(x: Sequence[int], *_: Any, **__: Any) -> int:
        return int(cost.norm_cost(*_rows_cols(x), 2, rms=True).flop)

    @register_flop_formula([ops.layer_norm, ops.add_layer_norm])
    def _(x: Sequence[int], *_: Any, **__: Any) -> int:
        return int(cost.norm_cost(*_rows_cols(x), 2, rms=False).flop)

    @register_flop_formula([ops.norm_backward])
    def _(dy: Sequence[int], ds: Any, x: Any, w: Any, mean: Any, rstd: Any, rms: bool, *_: Any, **__: Any) -> int:
        return int(cost.norm_backward_cost(*_rows_cols(dy), 2, rms=rms).flop)

    @register_flop_formula([ops.mlp])
    def _(x: Sequence[int], w1: Sequence[int], b1: Any, w2: Sequence[int], *_: Any, **__: Any) -> int:
        m, d = _rows_cols(x)
        return int(cost.mlp_cost(m, d, w1[0], w2[0], 2).flop)


register()
