"""Chains generated from expressions: values, broadcasting, dropout, what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lanewise.errors import UsageError
from lanewise.kernels import (
    add_autotuned,
    add_masked,
    add_plain,
    bias_gelu,
    bias_gelu_tanh,
    bias_relu,
    bias_silu,
    counts,
    gelu_mul,
    gelu_tanh_mul,
    pointwise,
    residual_scale_add,
    silu_mul,
)
from lanewise.kernels.pointwise_chain import UnsupportedError
from tests.kernels.helpers import same


def test_named_chains(device):
    x, y = torch.randn(5, 33, device=device), torch.randn(5, 33, device=device)
    b = torch.randn(33, device=device)
    same(silu_mul, lambda g, u: F.silu(g) * u, [x, y])
    same(gelu_mul, lambda g, u: F.gelu(g) * u, [x, y])
    same(gelu_tanh_mul, lambda g, u: F.gelu(g, approximate="tanh") * u, [x, y])
    same(bias_relu, lambda x, b: F.relu(x + b), [x, b])
    same(bias_gelu, lambda x, b: F.gelu(x + b), [x, b])
    same(bias_gelu_tanh, lambda x, b: F.gelu(x + b, approximate="tanh"), [x, b])
    same(bias_silu, lambda x, b: F.silu(x + b), [x, b])
    same(residual_scale_add, lambda x, s, r: x * s + r, [x, b, y])


def test_broadcast_strides_and_rank(device):
    def expression(a, b, c):
        return torch.where(a > 0, a * b, c - a) / (1 + a.abs()) + b.clamp(-0.5, 0.5) ** 2

    chain = pointwise(expression)
    base = torch.randn(4, 6, 5, 8, device=device)
    scalar = torch.tensor(2.0, device=device)
    for inputs in (
        [base, base[:, :1], scalar],
        [base.permute(3, 1, 0, 2), base.permute(3, 1, 0, 2)[:1], scalar],
        [base[0, 0], base[0, 0, :1], base[0, 0, :, :1]],
        [base.flatten()[1:101], base.flatten()[2:102], scalar],
        [base[:, ::2, :, ::3], base[:1, :1, :1, ::3], scalar],
        [base[:0], base[:0], scalar],
    ):
        same(chain, expression, inputs)


def test_mixed_dtypes_promote_as_in_torch(device):
    chain = pointwise(lambda a, b: a * 2 + b)
    half, single = torch.randn(9, device=device).bfloat16(), torch.randn(9, device=device)
    assert chain(half, single).dtype == torch.float32
    assert chain(half, half).dtype == torch.bfloat16


def test_nan_stays(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -1.0], device=device)
    for expression in (
        lambda a: torch.relu(a),
        lambda a: a.clamp(-1, 1),
        lambda a: torch.maximum(a, a * 0),
        lambda a: a.tanh(),
    ):
        got, want = pointwise(expression)(x), expression(x)
        assert torch.allclose(got, want, equal_nan=True)


def test_dropout_follows_its_seed(device):
    chain = pointwise(lambda x: F.dropout(x, 0.25, True))
    x = torch.ones(20000, device=device)
    first = chain(x, seed=3)
    assert torch.equal(first, chain(x, seed=3))
    assert not torch.equal(first, chain(x, seed=4))
    assert first.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((first == 0).float().mean().item() - 0.25) < 0.02


def test_long_chain_is_one_kernel(device):
    def thirty(x):
        for _ in range(15):
            x = x * 1.01 + 0.1
        return x

    chain = pointwise(thirty)
    assert chain.operations == 30
    same(chain, thirty, [torch.randn(1000, device=device)])


def test_graph_module(device):
    module = torch.fx.symbolic_trace(lambda a, b: torch.sigmoid(a) * b)
    same(pointwise(module), lambda a, b: torch.sigmoid(a) * b, [torch.randn(70, device=device) for _ in range(2)])


@pytest.mark.parametrize(
    "expression", [lambda a: a.sum(0), lambda a: a @ a, lambda a: (a, a), lambda a: a**2.5, lambda a: a.to(torch.int32)]
)
def test_what_is_not_pointwise_is_named(expression):
    with pytest.raises(UnsupportedError):
        pointwise(expression)
    with pytest.raises(UnsupportedError):
        pointwise(torch.relu)


def test_gradients_run_the_expression(device):
    x = torch.randn(8, device=device, requires_grad=True)
    silu_mul(x, x).sum().backward()
    assert x.grad is not None
    assert counts()["pointwise"] == {"needs gradients": 1}


def test_vector_additions(device):
    for n in (1, 1023, 1024, 5000):
        a, b = torch.randn(n, device=device), torch.randn(n, device=device)
        assert torch.equal(add_masked(a, b), a + b)
        if device == "cuda":
            assert torch.equal(add_autotuned(a, b), a + b)
    a = torch.randn(2048, device=device)
    assert torch.equal(add_plain(a, a), a + a)
    with pytest.raises(UsageError):
        add_plain(a[:100], a[:100])
