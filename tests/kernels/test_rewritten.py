"""Library calls in a program's graph are replaced by kernels of ours where these are faster, for forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from shutil import which
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from lanewise.fix.rewrites import graph_passes
from lanewise.fix.rewrites.convolutions import replace_convolutions
from lanewise.fix.rewrites.products import replace_products
from lanewise.fix.rewrites.which_is_faster import Faster
from lanewise.kernels import split_product


def always(*_: Any) -> bool:
    return True


def targets(function: Callable[..., Any], *args: Any, faster: Any = always) -> list[str]:
    """Operators in the rewritten graph, which is run and held against the function."""
    traced = make_fx(function, tracing_mode="fake")(*args)
    replace_products(traced.graph, faster)
    replace_convolutions(traced.graph, faster)
    traced.recompile()
    torch.testing.assert_close(traced(*args), function(*args))
    return [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]


def called(module: nn.Module) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """A module as a function of its input and its parameters, and these."""
    names, weights = zip(*module.named_parameters(), strict=True)
    return lambda x, *given: functional_call(module, dict(zip(names, given, strict=True)), x), list(weights)


def test_products_of_single_precision_are_replaced() -> None:
    x, w, b = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)
    assert "lanewise.split_product.default" in targets(lambda x, w: x @ w.T, x, w)
    assert "lanewise.split_product.default" in targets(F.linear, x, w, b)
    assert "aten.mm.default" not in targets(lambda x, w: x @ w.T, x, w)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: x.double() @ w.double(),
        lambda x, w, b: torch.addmm(b, x, w, beta=0.5),
        lambda x, w, b: torch.addmm(torch.outer(x[:, 0], b), x, w),
        lambda x, w, b: (x[None] @ w[None])[0],
        lambda x, w, b: x[:1] @ w,
    ],
)
def test_other_products_stay(function: Callable[..., Any]) -> None:
    assert not [
        one for one in targets(function, torch.randn(6, 8), torch.randn(8, 5), torch.randn(5)) if "split" in one
    ]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Conv3d, nn.ConvTranspose3d])
def test_convolutions_of_volumes_are_replaced(kind: Any, bias: bool) -> None:
    module, x = kind(4, 6, 3, stride=2, bias=bias).requires_grad_(False), torch.randn(2, 4, 7, 8, 9)
    call, weights = called(module)
    assert "lanewise.convolution_channels_last.default" in targets(call, x, *weights)
    assert "aten.convolution.default" in targets(call, x, *weights, faster=lambda *_: False)
    assert "aten.convolution.default" in targets(call, x.to(memory_format=torch.channels_last_3d), *weights)


def test_convolutions_of_images_are_left_to_the_compiler() -> None:
    call, weights = called(nn.ConvTranspose2d(4, 6, 3).requires_grad_(False))
    assert "aten.convolution.default" in targets(call, torch.randn(2, 4, 7, 8), *weights)


def test_a_product_stays_where_ours_is_slower_or_tf32_is_allowed() -> None:
    x, w = torch.randn(6, 8), torch.randn(8, 5)
    assert "aten.mm.default" in targets(torch.mm, x, w, faster=lambda *_: False)
    torch.set_float32_matmul_precision("high")
    try:
        assert "aten.mm.default" in targets(torch.mm, x, w)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_without_a_card_nothing_is_faster() -> None:
    assert not Faster()("mm", torch.mm, torch.mm, [torch.randn(4, 4), torch.randn(4, 4)])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(x).reshape(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mask = (torch.arange(16)[:, None] >= 0).expand(2, 1, 16, 16)
        return F.gelu(self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)))


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="needs a C++ compiler")
def test_compiled_code_with_the_rewrites_computes_what_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def yes(name: str, *_: Any) -> bool:
        asked.append(name)
        return True

    monkeypatch.setattr(graph_passes, "Faster", lambda: yes)
    torch._dynamo.reset()
    module, x = Block(), torch.randn(2, 16, 32)
    compiled = torch.compile(module, dynamic=False, options=graph_passes.passes())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert asked.count("aten.addmm.default") == 2
    compiled(x).sum().backward()
    mine = [one.grad.clone() for one in module.parameters()]
    assert asked.count("aten.mm.default") >= 3, "products of the backward pass are products, too"
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(mine, [one.grad for one in module.parameters()], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_on_a_card_a_product_that_pays_is_found() -> None:
    """Three instructions of the tensor cores take less time than one beside them; a product of few values does not pay."""
    large, small = (
        [torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").T] for m, n, k in LARGE_AND_SMALL
    )
    faster = Faster()
    before = torch.cuda.get_rng_state()
    assert faster("mm", split_product, torch.mm, large) or torch.cuda.get_device_capability() < (8, 0)
    assert not faster("mm", split_product, torch.mm, small)
    assert torch.equal(torch.cuda.get_rng_state(), before)


LARGE_AND_SMALL = [(4096, 4096, 4096), (8, 8, 8)]
