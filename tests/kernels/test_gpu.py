"""What only a device can show: rows shared by waiting programs, 2^31 elements, streams, graphs, compiling, launches."""

from __future__ import annotations

import dataclasses
import gc

import pytest
import torch
import torch.nn.functional as F

from lanewise.kernels import (
    add_rms_norm,
    bias_gelu,
    counts,
    gated_linear,
    gated_mlp,
    layer_norm,
    linear_act,
    mlp,
    pointwise,
    rms_norm,
    silu_mul,
    softmax,
)
from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.launcher import Kernel, direct
from lanewise.kernels.gemm import batched_linear as batched
from lanewise.kernels.gemm import fused_gated_mlp as gated_mlps
from lanewise.kernels.gemm import fused_mlp as mlps
from lanewise.kernels.gemm import matmul
from lanewise.kernels.gemm.matmul import SkinnyBlocks, TileBlocks
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import norm_backward_kernels, norm_cluster_kernels, softmax_backward_kernels, softmax_kernels
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes
from lanewise.kernels.rows.row_layout import Layout, use_layout
from tests.kernels.helpers import error, gradients, same

pytestmark = pytest.mark.gpu
BF16 = torch.bfloat16


@pytest.mark.parametrize("cols", [16385, 32768, 65536, 65537, 131072, 1 << 20])
def test_rows_shared_by_programs(cols):
    for rows in (1, 3, 300 if cols < 1 << 18 else 20):
        _shared_by_programs(rows, cols)


def _shared_by_programs(rows, cols):
    x = torch.randn(rows, cols, device="cuda")
    w, b = torch.randn(cols, device="cuda"), torch.randn(cols, device="cuda")
    same(softmax, softmaxes.reference, [x])
    same(rms_norm, rms_norms.reference, [x, w])
    same(layer_norm, layer_norms.reference, [x, w, b])
    same(lambda x, w: add_rms_norm(x, x, w)[0], lambda x, w: rms_norms.reference(x + x, w), [x, w])
    grads = [torch.randn_like(x)]
    mine = gradients(softmax, [x], grads, [0])
    true = gradients(softmaxes.reference, [x.double()], [grads[0].double()], [0])
    assert error(mine[0], true[0]) < 1e-5


CLUSTERS = [
    (8193, Layout(1, 4096, 3, 4)),
    (16384, Layout(1, 8192, 2, 8, 0, 2)),
    (20000, Layout(1, 4096, 5, 8, 3)),
    (40001, Layout(1, 8192, 5, 16, 2, 2)),
    (65536, Layout(1, 4096, 16, 4)),
    (65000, Layout(1, 8192, 8, 8, 0, 1, 64)),
]


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="no clusters")
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize(("cols", "shape"), CLUSTERS)
def test_every_cut_into_clusters(cols, shape, dtype):
    x, r, dy = (torch.randn(301, cols, device="cuda").to(dtype) for _ in range(3))
    w, b = torch.randn(cols, device="cuda").to(dtype), torch.randn(cols, device="cuda").to(dtype)
    x[7, 100] = float("nan")
    x[8] = float("-inf")
    for kernel in ("softmax", "softmax_backward"):
        use_layout(kernel, (dtype, cols), shape)
    same(softmax, softmaxes.reference, [x])
    x[7:9] = 1.0
    for name in ("rms_norm", "layer_norm"):
        for add in (False, True):
            use_layout(name, (dtype, cols, add), shape)
    for rms in (False, True):
        tuning.override("norm_backward", (dtype, cols, rms), dataclasses.replace(shape, persistent=1))
    same(rms_norm, rms_norms.reference, [x, w])
    same(layer_norm, layer_norms.reference, [x, w, b])
    same(lambda x, r, w: add_rms_norm(x, r, w)[0], lambda x, r, w: rms_norms.reference(x + r, w), [x, r, w])
    for ours, reference, leaves in (
        (softmax, softmaxes.reference, [x]),
        (rms_norm, rms_norms.reference, [x, w]),
        (layer_norm, layer_norms.reference, [x, w, b]),
    ):
        wanted = range(len(leaves))
        true = gradients(reference, [t.double() for t in leaves], [dy.double()], wanted)
        for _ in range(2):  # the second call is a remembered one
            mine = gradients(ours, leaves, [dy], wanted)
            assert all(
                error(a, t) < (1e-5 if dtype == torch.float32 else 1e-2) for a, t in zip(mine, true, strict=True)
            )
    for kernel in (
        softmax_kernels.SPLIT_KERNEL,
        softmax_backward_kernels.BACKWARD_SPLIT_KERNEL,
        norm_cluster_kernels.SPLIT_KERNEL,
    ):
        assert kernel.compiled(), f"{kernel.fn.__name__} did not use clusters"
    assert norm_backward_kernels.BACKWARD_SPLIT_KERNEL.compiled()
    tuning.forget()


def test_remembered_calls_see_what_changed():
    """The same function on other shapes, layouts, types and modes in turn: each as if it were the first call."""
    w = torch.randn(512, device="cuda", dtype=BF16)
    base = torch.randn(64, 1024, device="cuda", dtype=BF16)
    kinds = [base[:, :512].contiguous(), base[:, :512], base[:, 1:513], base[:8, :512].contiguous()]
    kinds += [base[:, :512].float(), base[:, :512].contiguous().requires_grad_()]
    for _ in range(3):
        for x in kinds:
            weight = w.to(x.dtype)
            assert error(rms_norm(x, weight), rms_norms.reference(x.double(), weight.double())) < 1e-2
            total = add_rms_norm(x, x, weight)[1]
            assert error(total, x + x) < 1e-2
            more = torch.randn_like(x)
            assert error(add_rms_norm(x, more, weight)[1], x + more) < 1e-2
            assert error(silu_mul(x.detach(), more), F.silu(x.double()) * more.double()) < 1e-2
    with torch.autocast("cuda", dtype=torch.float16):
        assert softmax(kinds[0].float()).dtype == torch.float32
        assert rms_norm(kinds[0], w).dtype == rms_norms.reference(kinds[0], w).dtype
    with torch.inference_mode():
        assert softmax(kinds[0]).is_inference()
    counted = counts()["rms_norm"]
    assert counted["kernel"] >= 18


def test_shared_rows_on_many_streams():
    x = torch.randn(64, 70000, device="cuda")
    want = torch.softmax(x, -1)
    streams = [torch.cuda.Stream() for _ in range(6)]
    outs = []
    for _ in range(5):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                outs.append(softmax(x))
    torch.cuda.synchronize()
    assert all(error(out, want) < 1e-5 for out in outs)


def test_more_than_2_to_the_31_elements():
    rows, cols = 70000, 32768  # 2.29e9 elements, 4.6 GB
    x = torch.randn(1, cols, device="cuda").to(BF16).repeat(rows, 1)
    x[-1] = torch.randn(cols, device="cuda").to(BF16)
    want = torch.softmax(x[-3:].float(), -1)
    assert error(softmax(x)[-3:], want) < 8e-3
    gc.collect()
    w = torch.randn(cols, device="cuda").to(BF16)
    assert error(rms_norm(x, w)[-3:], rms_norms.reference(x[-3:].float(), w.float())) < 8e-3
    gc.collect()
    chain = pointwise(lambda a, b: a * 2 + b)
    got = chain(x, w)
    assert error(got[-3:], x[-3:].float() * 2 + w.float()) < 8e-3
    assert error(got[:2], x[:2].float() * 2 + w.float()) < 8e-3


def test_huge_stride():
    base = torch.zeros(2 * (1 << 31) + 4096, dtype=torch.uint8, device="cuda").view(BF16)
    x = base.as_strided((2, 512), (1 << 31, 1))
    x.copy_(torch.randn(2, 512))
    same(softmax, softmaxes.reference, [x])
    same(rms_norm, rms_norms.reference, [x, torch.ones(512, device="cuda", dtype=BF16)])


def test_other_stream_and_graph_capture():
    x = torch.randn(128, 4096, device="cuda", dtype=BF16)
    wide = torch.randn(16, 70000, device="cuda", dtype=BF16)
    w = torch.randn(4096, device="cuda", dtype=BF16)
    functions = [lambda: softmax(x), lambda: rms_norm(x, w), lambda: softmax(wide), lambda: silu_mul(x, x)]
    for function in functions:
        want = function()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert torch.equal(function(), want)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = function()
        for _ in range(3):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, want)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_sees_through(dynamic):
    torch._dynamo.reset()

    def model(x, r, w, b):
        y, total = add_rms_norm(x, r, w)
        return layer_norm(softmax(y * 2), w, b) + total

    inputs = [torch.randn(40, 256, device="cuda", requires_grad=True) for _ in range(2)]
    inputs += [torch.randn(256, device="cuda", requires_grad=True) for _ in range(2)]
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for rows in (40, 24):
        args = [t[:rows] if t.dim() == 2 else t for t in inputs]
        want = model(*args)
        got = compiled(*args)
        assert error(got, want) < 1e-5
        grad = torch.randn_like(want)
        mine = torch.autograd.grad(got, inputs, grad)
        true = torch.autograd.grad(want, inputs, grad)
        assert all(error(a, b) < 1e-4 for a, b in zip(mine, true, strict=True))


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
@pytest.mark.parametrize("shape", [(128, 128, 64), (300, 256, 192), (1000, 520, 136), (64, 64, 8)])
def test_tiles(shape, dtype):
    m, n, k = shape
    x = torch.randn(m, k, device="cuda").to(dtype)
    w, up = (torch.randn(n, k, device="cuda").to(dtype) / k**0.5 for _ in range(2))
    bias, more = torch.randn(n, device="cuda").to(dtype), torch.randn(m, n, device="cuda").to(dtype)
    exact = x.double() @ w.double().t() + bias.double()
    cuts = [TileBlocks(128, 128, 64, 8, 3), TileBlocks(128, 128, 64, 8, 3, halves=2, flatten=True)]
    for blocks in (*cuts, TileBlocks(128, 128, 64, 4, 3, halves=2, per_sm=2)):
        for activation in ("relu", "gelu", "gelu_tanh", "silu", None) if blocks is cuts[0] else ("gelu",):
            out = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
            matmul.tiles(x, w, None, bias, more, ACTIVATIONS[activation], out, blocks)
            want = gemm_activation(exact, activation) + more.double()
            assert error(out, want) < 8e-3
    both = torch.stack([up, w])
    for gate, other in ((w, up), (both[0], both[1]), (both[1], both[0])):
        want = F.silu(x.double() @ gate.double().t()) * (x.double() @ other.double().t())
        for blocks in (
            TileBlocks(128, 128, 64, 8, 3),
            TileBlocks(128, 128, 64, 8, 3, pair=True),
            TileBlocks(128, 64, 64, 4, 3, flatten=True, pair=True, per_sm=2),
            TileBlocks(64, 32, 64, 4, 4, 1, pair=True, per_sm=4),
        ):
            out = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
            matmul.tiles(x, gate, other, None, None, ACTIVATIONS["silu"], out, blocks)
            assert error(out, want) < 1e-2


@pytest.mark.parametrize("shape", [(3, 300, 264, 72), (2, 128, 128, 64), (5, 1, 8, 8)])
def test_batched(shape):
    b, m, n, k = shape
    x, w = torch.randn(b, m, k, device="cuda").to(BF16), torch.randn(b, n, k, device="cuda").to(BF16) / k**0.5
    bias = torch.randn(b, n, device="cuda").to(BF16)
    exact = torch.baddbmm(bias.double()[:, None], x.double(), w.double().transpose(1, 2))
    for blocks in (TileBlocks(128, 128, 64, 4, 3, halves=2, flatten=True, per_sm=2), TileBlocks(128, 256, 64, 8, 3)):
        out = torch.full((b, m, n), float("nan"), device="cuda", dtype=BF16)
        batched.batched_into(x, w, bias, ACTIVATIONS["gelu"], out, blocks)
        assert error(out, F.gelu(exact)) < 8e-3


@pytest.mark.parametrize(("m", "d", "h"), [(1, 1024, 2816), (8, 2048, 5632), (3, 264, 1000)])
def test_gated_mlp(m, d, h):
    x = torch.randn(m, d, device="cuda").to(BF16)
    gate, up, down = (torch.randn(a, b, device="cuda").to(BF16) / b**0.5 for a, b in ((h, d), (h, d), (d, h)))
    want = gated_mlps.reference(x.double(), gate.double(), up.double(), down.double())
    for _ in range(3):  # each finds the counters as the one before left them
        assert error(gated_mlp(x, gate, up, down), want) < 1e-2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = gated_mlp(x, gate, up, down)
    for _ in range(3):
        y.fill_(float("nan"))
        graph.replay()
        assert error(y, want) < 1e-2
    if torch.cuda.get_device_capability() == (9, 0):
        assert set(counts()["gated_mlp"]) == {"kernel"}


def gemm_activation(value, name):
    if name is None:
        return value
    return F.gelu(value, approximate="tanh") if name == "gelu_tanh" else getattr(F, name)(value)


@pytest.mark.parametrize("m", [1, 7, 16, 33, 64])
@pytest.mark.parametrize("split", [1, 4])
def test_skinny(m, split):
    n, k = 520, 1096
    x = torch.randn(m, k, device="cuda").to(BF16)
    w, up = (torch.randn(n, k, device="cuda").to(BF16) / k**0.5 for _ in range(2))
    bias, more = torch.randn(n, device="cuda").to(BF16), torch.randn(m, n, device="cuda").to(BF16)
    blocks = SkinnyBlocks(64 if m > 16 else 16, 32, 128, split, 4, 3)
    first = None
    for _ in range(3):
        out = torch.full((m, n), float("nan"), device="cuda", dtype=BF16)
        matmul.skinny(x, w, None, bias, more, ACTIVATIONS["gelu"], out, blocks)
        first = out if first is None else first
        assert torch.equal(out, first)
    assert error(out, F.gelu(x.double() @ w.double().t() + bias.double()) + more.double()) < 8e-3
    matmul.skinny(x, w, up, None, None, ACTIVATIONS["silu"], out, blocks)
    assert error(out, F.silu(x.double() @ w.double().t()) * (x.double() @ up.double().t())) < 1e-2


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("shape", [(64, 64, 64, 1000), (128, 128, 128, 333), (64, 256, 64, 130), (40, 96, 24, 65)])
def test_mlp(shape, activation):
    d, h, o, m = shape
    x = torch.randn(m, d, device="cuda").to(BF16)
    w1, w2 = torch.randn(h, d, device="cuda").to(BF16) / d**0.5, torch.randn(o, h, device="cuda").to(BF16) / h**0.5
    b1, b2 = torch.randn(h, device="cuda").to(BF16), torch.randn(o, device="cuda").to(BF16)
    same(lambda *t: mlp(*t, activation), lambda *t: mlps.reference(*t, activation), [x, w1, b1, w2, b2])
    assert set(counts()["mlp"]) == {"kernel"}


def test_public_products():
    x = torch.randn(4, 50, 256, device="cuda").to(BF16)
    w = torch.randn(512, 256, device="cuda").to(BF16) / 16
    b = torch.randn(512, device="cuda").to(BF16)
    exact = F.linear(x.double(), w.double(), b.double())
    for activation in ("relu", "gelu", "gelu_tanh", "silu", None):
        got = linear_act(x, w, b, activation)
        assert got.shape == (4, 50, 512)
        assert error(got, gemm_activation(exact, activation)) < 8e-3
    for m in (1, 16, 64, 200):
        x = torch.randn(m, 256, device="cuda").to(BF16)
        up = torch.randn_like(w) / 16
        want = F.silu(F.linear(x.double(), w.double())) * F.linear(x.double(), up.double())
        assert error(gated_linear(x, w, up), want) < 1e-2


def test_other_layouts_are_not_specialised_away():
    """The remembered launch must tell aligned from unaligned pointers."""
    flat = torch.randn(1 << 16, device="cuda", dtype=BF16)
    bias = torch.randn(64, device="cuda", dtype=BF16)
    for start in (0, 1, 2, 8, 3, 0):
        x = flat[start : start + 6400].view(100, 64)
        same(softmax, softmaxes.reference, [x])
        same(bias_gelu, lambda x, b: F.gelu(x + b), [x, bias])


def test_launches_are_remembered():
    x = torch.randn(64, 2048, device="cuda", dtype=BF16)
    kernel: Kernel = softmaxes.ROWS_KERNEL
    kernel.forget()
    for _ in range(5):
        softmax(x)
    assert len(kernel.compiled()) == 1
    assert kernel.compiled()[0].n_spills == 0
    assert direct()


def test_profilers_inside_triton_are_called():
    from triton import knobs

    seen = []
    x = torch.randn(64, 2048, device="cuda", dtype=BF16)
    softmax(x)
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        softmax(x)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["_softmax_rows"]
