"""Autograd functions at a lower price on the host.

`torch.autograd.Function.apply` looks for functorch transforms, and `once_differentiable` opens a `no_grad` block and
walks over the results, each time. The public functions have already asked whether anything but autograd looks at the
call, and a backward pass that is not itself recorded needs no guard against a second derivative.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

__all__ = ["apply", "differentiable_once"]


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply(*inputs)` for a call of which `guard.eager()` holds."""
    return super(torch.autograd.Function, function).apply(*inputs)  # pyright: ignore[reportAttributeAccessIssue]


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """`once_differentiable`, which costs nothing unless the backward pass is recorded (`create_graph=True`)."""
    guarded = once_differentiable(backward)

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return run
