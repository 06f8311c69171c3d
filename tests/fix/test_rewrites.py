"""Attention masks are laid out in a program's graph so that fused attention can read them, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from lanewise.fix.rewrites.masks import lay_out_masks

Q = torch.randn(2, 3, 8, 4)


class Attends(nn.Module):
    """Attention with a mask made from the call's own tensors, as models make it; remembers the mask's strides."""

    def __init__(self, mask: Callable[[torch.Tensor], torch.Tensor | None], *, positional: bool) -> None:
        super().__init__()
        self.mask, self.positional = mask, positional

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        mask = self.mask(q)
        if self.positional:
            return F.scaled_dot_product_attention(q, q, q, mask)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def rewritten(module: nn.Module) -> tuple[torch.Tensor, list[tuple[int, ...]], bool]:
    """Result of a call through the rewritten graph, strides of the masks that attention got, and whether it changed."""
    strides: list[tuple[int, ...]] = []
    changed: list[bool] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        before = len(graph.graph.nodes)
        lay_out_masks(graph.graph)
        graph.recompile()
        changed.append(len(graph.graph.nodes) != before)

        class Looks(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                if target is F.scaled_dot_product_attention:
                    mask = kwargs.get("attn_mask") if len(args) < 4 else args[3]
                    strides.append(mask.stride() if mask is not None else ())
                return super().call_function(target, args, kwargs)

        return lambda *inputs: Looks(graph).run(*inputs)

    torch._dynamo.reset()
    return torch.compile(module, backend=backend, dynamic=False)(Q), strides, changed[0]


def all_may(q: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(q.shape[-2], device=q.device)[:, None] >= 0
    return rows.expand(q.shape[0], 1, q.shape[-2], q.shape[-2])


def permuted(q: torch.Tensor) -> torch.Tensor:
    return torch.arange(3.0 * 64).reshape(1, 8, 8, 3).permute(0, 3, 1, 2) / 100


def for_all_heads(q: torch.Tensor) -> torch.Tensor:
    return (torch.arange(64.0) / 10).reshape(8, 8).t().expand(2, 3, 8, 8)


@pytest.mark.parametrize("positional", [True, False])
@pytest.mark.parametrize("mask", [all_may, permuted, for_all_heads])
def test_a_mask_is_copied_where_its_rows_do_not_lie_side_by_side(mask: Any, positional: bool) -> None:
    module = Attends(mask, positional=positional)
    result, (stride,), changed = rewritten(module)
    assert changed
    assert mask(Q).stride(-1) != 1
    assert stride[-1] == 1
    torch.testing.assert_close(result, module(Q))


def test_what_all_heads_share_is_copied_once() -> None:
    _, (stride,), _ = rewritten(Attends(for_all_heads, positional=True))
    assert stride[:2] == (0, 0)


@pytest.mark.parametrize(
    "mask", [lambda _: None, lambda q: torch.ones(8, 8, dtype=torch.bool), lambda q: torch.ones(8, 1)]
)
def test_no_mask_and_one_that_can_be_read_stay(mask: Any) -> None:
    module = Attends(mask, positional=False)
    result, _, changed = rewritten(module)
    assert not changed
    torch.testing.assert_close(result, module(Q))
