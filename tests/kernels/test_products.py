"""The narrow MLP and the products with fused epilogues, small enough for the interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lanewise.kernels import batched_linear_act, counts, gated_linear, linear_act, mlp, split_product
from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.gemm import batched_linear as batched
from lanewise.kernels.gemm import dual_gemm, gemm_epilogue, matmul
from lanewise.kernels.gemm import fused_gated_mlp as gated_mlps
from lanewise.kernels.gemm import fused_mlp as mlps
from lanewise.kernels.gemm import split_product as splits
from lanewise.kernels.gemm.fused_mlp import Blocks
from lanewise.kernels.gemm.matmul import SkinnyBlocks, TileBlocks
from tests.kernels.helpers import error, same

interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="fp32 cuts that only the interpreter takes")


@interpreter
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("bh", [0, 16])
def test_mlp(activation, bh):
    d, h, o, m = 20, 33, 7, 70
    x = torch.randn(m, d)
    w1, b1, w2, b2 = torch.randn(h, d) / 4, torch.randn(h), torch.randn(o, h) / 4, torch.randn(o)
    tuning.override("mlp", (x.dtype, d, h, o, False), Blocks(32, bh, 4, 1, 1))
    same(lambda *t: mlp(*t, activation), lambda *t: mlps.reference(*t, activation), [x, w1, b1, w2, b2])
    same(lambda *t: mlp(*t, activation), lambda *t: mlps.reference(*t, activation), [x, w1, None, w2, None])
    assert set(counts()["mlp"]) == {"kernel"}
    tuning.forget()


@interpreter
@pytest.mark.parametrize("halves", [1, 2])
def test_tiles(halves):
    m, n, k = 70, 96, 40
    x, w, up = torch.randn(m, k), torch.randn(n, k), torch.randn(n, k)
    bias, more = torch.randn(n), torch.randn(m, n)
    out = torch.full((m, n), float("nan"))
    matmul.tiles(x, w, None, bias, more, ACTIVATIONS["gelu"], out, TileBlocks(32, 32, 16, 4, 3, halves=halves))
    assert error(out, F.gelu(F.linear(x.double(), w.double(), bias.double())) + more.double()) < 1e-6
    want = dual_gemm.reference(x.double(), w.double(), up.double())
    for pair in (False, True):
        out.fill_(float("nan"))
        matmul.tiles(x, w, up, None, None, ACTIVATIONS["silu"], out, TileBlocks(32, 32, 16, 4, 3, pair=pair))
        assert error(out, want) < 2e-6
    both = torch.stack([up, w])
    for gate, other in ((both[1], both[0]), (both[0], both[1]), (w, w)):
        out.fill_(float("nan"))
        matmul.tiles(x, gate, other, None, None, ACTIVATIONS["silu"], out, TileBlocks(32, 32, 16, 4, 3, pair=True))
        assert error(out, dual_gemm.reference(x.double(), gate.double(), other.double())) < 2e-6


@interpreter
@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_batched(halves, activation):
    b, m, n, k = 3, 37, 40, 24
    x, w, bias = torch.randn(b, m, k), torch.randn(b, n, k) / 4, torch.randn(b, n)
    tuning.override("batched", (b, m, n, k, x.dtype), TileBlocks(32, 32, 16, 4, 3, 2, halves))
    for given in (bias, None):
        same(
            lambda *t: batched_linear_act(*t, activation),
            lambda *t: batched.reference(*t, activation),
            [x, w, given],
        )
    expected = {"kernel"} if activation else {"kernel", "nothing to fuse"}
    assert set(counts()["batched_linear_act"]) == expected
    batched_linear_act(x.requires_grad_(), w, bias, activation)
    batched_linear_act(x.detach()[:, ::2], w, bias, activation)
    assert {"needs gradients", "layout"} < set(counts()["batched_linear_act"])
    tuning.forget()


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((64, 64, 64, 512), True),
        ((64, 64, 64, 32), False),
        ((64, 256, 64, 8192), True),
        ((128, 512, 128, 65536), True),
        ((128, 512, 128, 512), False),
        ((256, 1024, 256, 32), False),
        ((256, 1024, 256, 65536), False),
    ],
)
def test_an_mlp_is_taken_where_it_was_measured_ahead(shape, taken):
    assert mlps._measured(*shape) is taken


@pytest.mark.parametrize(("m", "activation"), [(1, "silu"), (7, "gelu_tanh")])
def test_gated_mlp(m, activation, device):
    d, h, o = 40, 520, 36
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, gate, up, down = (
        (torch.randn(rows, cols, device=device) / scale).to(dtype)
        for rows, cols, scale in ((m, d, 1), (h, d, 6), (h, d, 6), (o, h, 20))
    )
    same(
        lambda *t: gated_mlps.gated_mlp(*t, activation),
        lambda *t: gated_mlps.reference(*t, activation),
        [x, gate, up, down],
    )
    assert device == "cuda" or set(counts()["gated_mlp"]) == {"kernel"}
    gated_mlps.gated_mlp(torch.randn(9, d, device=device).to(dtype), gate, up, down)
    gated_mlps.gated_mlp(x, gate, up, down.clone().requires_grad_())
    assert {"rows", "needs gradients"} <= set(counts()["gated_mlp"])


@interpreter
@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("m", [1, 13])
def test_skinny(m, split):
    n, k = 50, 70
    x, w, up = torch.randn(m, k), torch.randn(n, k), torch.randn(n, k)
    bias, more = torch.randn(n), torch.randn(m, n)
    blocks = SkinnyBlocks(16, 32, 16, split, 4, 2)
    for _ in range(2):
        out = torch.full((m, n), float("nan"))
        matmul.skinny(x, w, None, bias, more, ACTIVATIONS["relu"], out, blocks)
        assert error(out, F.relu(F.linear(x.double(), w.double(), bias.double())) + more.double()) < 1e-6
    matmul.skinny(x, w, up, None, None, ACTIVATIONS["silu"], out, blocks)
    assert error(out, dual_gemm.reference(x.double(), w.double(), up.double())) < 2e-6


def test_fast_activations_are_exact_to_half_precision():
    """The short formula for erf, restated in fp64: within 2e-7 of the exact GELU everywhere."""
    x = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    z = x.abs() * 0.7071067811865476
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = poly * torch.exp(-z * z)
    assert (0.5 * x * torch.where(x < 0, tail, 2 - tail) - F.gelu(x)).abs().max() < 4e-7


def test_public_functions_match_their_reference(device):
    x, w, up = (
        torch.randn(3, 5, 16, device=device),
        torch.randn(24, 16, device=device),
        torch.randn(24, 16, device=device),
    )
    bias, more = torch.randn(24, device=device), torch.randn(3, 5, 24, device=device)
    for activation in ACTIVATIONS:
        same(
            lambda *t, a=activation: linear_act(t[0], t[1], t[2], a, t[3]),
            lambda *t, a=activation: gemm_epilogue.reference(t[0], t[1], t[2], a, t[3]),
            [x, w, bias, more],
        )
    same(gated_linear, dual_gemm.reference, [x, w, up])


def test_routes_say_why():
    route = gemm_epilogue.route(4096, 4096, 4096, torch.bfloat16, True, "gelu_tanh", False)
    assert route.path == "cublas epilogue"
    assert gemm_epilogue.route(300, 300, 300, torch.float32, True, "gelu", False).path == "eager"
    assert dual_gemm.route(8, 1024, 1024, torch.bfloat16).path == "skinny"
    assert all(r.why for r in (route, dual_gemm.route(8, 64, 64, torch.float32)))


def test_what_is_refused(device):
    x, w, b = torch.randn(4, 300, device=device), torch.randn(8, 300, device=device), torch.randn(8, device=device)
    mlp(x, w, b, torch.randn(300, 8, device=device), None)
    mlp(x.requires_grad_(), w, b, torch.randn(8, 8, device=device), None)
    assert counts()["mlp"] == {"needs gradients": 1, ("dtype" if device == "cuda" else "too wide"): 1}


@pytest.mark.parametrize(("m", "n", "k"), [(70, 50, 96), (5, 130, 33), (64, 64, 64), (1, 1, 1)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_split_product(device, m, n, k, turned, with_bias):
    a = torch.randn(k, m, device=device).T if turned else torch.randn(m, k, device=device)
    b = torch.randn(n, k, device=device).T if turned else torch.randn(k, n, device=device)
    bias = torch.randn(n, device=device) if with_bias else None
    truth = splits.reference(a.double(), b.double(), None if bias is None else bias.double())
    before = counts().get("split_product", {}).get("kernel", 0)
    got = split_product(a, b, bias)
    assert counts()["split_product"]["kernel"] == before + 1
    assert got.shape == (m, n)
    assert got.is_contiguous()
    assert error(got, truth) < 1e-6
    assert torch.equal(torch.ops.lanewise.split_product(a, b, bias), got)


def test_split_product_leaves_what_it_does_not_take(device):
    a, b = torch.randn(4, 8, device=device), torch.randn(8, 6, device=device)
    cases = {
        "dtype": (a.double(), b.double(), None),
        "bias shape": (a, b, torch.randn(4, 6, device=device)),
        "empty": (a[:0], b, None),
        "gradients": (a.clone().requires_grad_(), b, None),
    }
    for reason, args in cases.items():
        before = counts().get("split_product", {}).get(reason, 0)
        torch.testing.assert_close(split_product(*args), splits.reference(*args))
        assert counts()["split_product"][reason] == before + 1, reason
    with pytest.raises(RuntimeError):
        split_product(a, a)
    torch.set_float32_matmul_precision("high")
    try:
        split_product(a, b)
        assert counts()["split_product"]["TF32 is allowed"] == 1
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), [(3136, 512, 2048), (1000, 1000, 1000), (257, 129, 4097)])
def test_split_product_is_as_near_to_double_precision_as_the_library(m, n, k):
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    truth = a.double() @ b.double()
    assert error(split_product(a, b), truth) <= 2 * error(a @ b, truth), "what the gate of a fix lets pass"
    a[0, :], b[0, :] = 0.0, 1e-20
    a[0, 0] = 3e30
    assert error(split_product(a, b), a.double() @ b.double()) < 2**-22
    a[1, 1], b[2, 2] = float("inf"), float("nan")
    got, want = split_product(a, b), a @ b
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())


def test_split_product_as_an_operator(device):
    a, b, bias = torch.randn(4, 8, device=device), torch.randn(8, 6, device=device), torch.randn(6, device=device)
    for args in ((a, b, bias), (a, b, None)):
        torch.library.opcheck(
            torch.ops.lanewise.split_product.default, args, test_utils=("test_schema", "test_faketensor")
        )
    with FlopCounterMode(display=False) as counter:
        torch.ops.lanewise.split_product(a, b, bias)
    assert counter.get_total_flops() == 2 * 4 * 8 * 6
