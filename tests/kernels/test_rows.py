"""Softmax, LayerNorm, RMSNorm and their fused additions: values, edges, layouts, gradients."""

from __future__ import annotations

import contextlib
import itertools
import math

import pytest
import torch

from lanewise.kernels import add_layer_norm, add_rms_norm, counts, layer_norm, rms_norm, softmax
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import norm_cluster_kernels, norm_forward_kernels
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes
from lanewise.kernels.rows.row_layout import Layout, next_power_of_2, rows_launch, twice_launch
from tests.kernels.helpers import FLOORS, error, gradients, same

# Rank 1 to 4, one row, one column, primes, powers of two and their neighbours, and rows shared by several programs.
SHAPES = [(7,), (1, 1), (2, 3, 17), (2, 2, 3, 64), (1, 1023), (3, 1025), (70, 16)]
LONG = [(2, 16385), (1, 40000)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def add_rms_reference(x, r, w):
    total = x + r
    return rms_norms.reference(total, w), total


def add_layer_reference(x, r, w, b):
    total = x + r
    return layer_norms.reference(total, w, b), total


@pytest.mark.parametrize(("shape", "dtype"), [(s, d) for s in SHAPES for d in DTYPES] + [(s, DTYPES[1]) for s in LONG])
def test_forward(shape, dtype, device):
    x, r = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    w, b = (torch.randn(shape[-1], device=device).to(dtype) for _ in range(2))
    same(softmax, softmaxes.reference, [x])
    same(rms_norm, rms_norms.reference, [x, w])
    same(layer_norm, layer_norms.reference, [x, w, b])
    same(layer_norm, layer_norms.reference, [x, None, None])
    same(add_rms_norm, add_rms_reference, [x, r, w])
    same(add_layer_norm, add_layer_reference, [x, r, w, b])
    assert all(set(calls) == {"kernel"} for calls in counts().values())


TWICE = [
    (8200, torch.float32, Layout(2, 4096, 0, 4, stages=2)),
    (16384, torch.bfloat16, Layout(1, 8192, 0, 4)),
    (9001, torch.bfloat16, Layout(4, 4096, 0, 4)),
    (9216, torch.float32, Layout(1, 4096, 3, 4, inner=2048)),
    (16384, torch.bfloat16, Layout(1, 8192, 2, 8, inner=4096)),
]


@pytest.mark.parametrize(("cols", "dtype", "shape"), TWICE)
def test_rows_walked_twice(cols, dtype, shape, device):
    """Every kernel that walks long rows twice: values far from zero, NaN, infinities, a mask, the saved statistics."""
    for kernel in ("softmax", *(("softmax_backward",) if shape.parts == 0 else ())):
        tuning.override(kernel, (dtype, cols), shape)
    for kernel in ("rms_norm", "layer_norm"):
        for add in (False, True):
            tuning.override(kernel, (dtype, cols, add), shape)
    try:
        x, r = (torch.randn(3, cols, device=device).to(dtype) for _ in range(2))
        w, b = (torch.randn(cols, device=device).to(dtype) for _ in range(2))
        same(rms_norm, rms_norms.reference, [x, w])
        same(layer_norm, layer_norms.reference, [x + 30, w, b])
        same(layer_norm, layer_norms.reference, [x * 1e-3 + 1, None, None])
        same(add_rms_norm, add_rms_reference, [x, r, w])
        same(add_layer_norm, add_layer_reference, [x, r, w, b])
        for name in ("softmax", "layer"):
            ours, reference, count = CASES[name]
            leaves = [x, w, b][:count]
            mine = gradients(ours, leaves, [r], range(count))
            true = gradients(reference, [t.double() for t in leaves], [r.double()], range(count))
            assert all(error(a, t) < 4 * FLOORS[dtype] for a, t in zip(mine, true, strict=True))
        x[0, 5000] = math.nan
        x[1] = -math.inf
        x[2, :-1] = -math.inf
        same(softmax, softmaxes.reference, [x])
        x[0] = -math.inf
        x[0, 17], x[1, 3], x[2, 0] = math.nan, math.inf, 1.0
        mask = torch.rand(cols, device=device) > 0.4
        mask[0] = True
        same(lambda x: softmax(x, -0.5, mask), lambda x: softmaxes.reference(x, -0.5, mask), [x])
        used = norm_cluster_kernels.PARTS_KERNEL if shape.inner else norm_forward_kernels.TWICE_KERNEL
        assert used.compiled() or device == "cpu"
    finally:
        tuning.forget()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 7, 256, 300])
def test_mean_and_variance_in_one_reduction(cols, dtype, device):
    """The first values, which the others are compared with, far from the rest; with a residual; rows of one value."""
    for add in (False, True):
        tuning.override("layer_norm", (dtype, cols, add), Layout(1, next_power_of_2(max(cols, 16)), 1, 4, once=True))
    try:
        x, r = (torch.randn(5, cols, device=device).to(dtype) for _ in range(2))
        x[1, :32] = 50.0
        x[2] += 20.0
        x[3] = 3.0
        w, b = (torch.randn(cols, device=device).to(dtype) for _ in range(2))
        same(layer_norm, layer_norms.reference, [x, w, b])
        same(add_layer_norm, add_layer_reference, [x, r, w, b])
        x[0, 0], x[4, -1] = math.nan, math.inf
        same(layer_norm, layer_norms.reference, [x, w, b])
    finally:
        tuning.forget()


@pytest.mark.parametrize("scale", [1e3, 1e-3])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_far_from_unit_scale(scale, offset, device):
    x = torch.randn(6, 333, device=device) * scale + offset
    w, b = torch.randn(333, device=device), torch.randn(333, device=device)
    same(softmax, softmaxes.reference, [x])
    same(rms_norm, rms_norms.reference, [x, w])
    same(layer_norm, layer_norms.reference, [x, w, b])


def test_constant_rows(device):
    x = torch.full((3, 100), 5.0, device=device)
    assert torch.allclose(softmax(x), torch.full_like(x, 0.01))
    assert torch.allclose(layer_norm(x), torch.zeros_like(x), atol=1e-4)
    x = torch.full((2, 20000), 5.0, device=device)
    assert torch.allclose(layer_norm(x), torch.zeros_like(x), atol=1e-3)


@pytest.mark.parametrize("cols", [33, 20000])
def test_nan_and_infinities(cols, device):
    x = torch.randn(7, cols, device=device)
    x[0, 3] = math.nan
    x[1, 5] = math.inf
    x[2, 7] = -math.inf
    x[3] = -math.inf
    x[4] = math.inf
    x[5] = math.nan
    same(softmax, softmaxes.reference, [x])
    w = torch.randn(cols, device=device)
    # The formula, not F.rms_norm: on CUDA its running mean turns a row with one infinity into NaN altogether.
    same(rms_norm, lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w, [x, w])
    same(layer_norm, layer_norms.reference, [x, w, w])


@pytest.mark.parametrize("cols", [40, 17000])
def test_part_of_a_row_all_minus_infinity(cols, device):
    x = torch.full((2, cols), -math.inf, device=device)
    x[:, -1] = 1.0
    same(softmax, softmaxes.reference, [x])


@pytest.mark.parametrize("scale", [0.125, -3.0])
@pytest.mark.parametrize("cols", [77, 16400])
def test_scaled_and_masked_softmax(cols, scale, device):
    x = torch.randn(4, cols, device=device)
    whole = torch.rand(4, cols, device=device) > 0.4
    one_row = torch.rand(cols, device=device) > 0.4
    none = torch.zeros(4, cols, dtype=torch.bool, device=device)
    column = torch.tensor([[True], [False], [True], [True]], device=device)
    for mask in (whole, one_row, none, column):
        same(lambda x, m=mask: softmax(x, scale, m), lambda x, m=mask: softmaxes.reference(x, scale, m), [x])


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0,), (2, 0, 5), (2, 5, 0)])
def test_zero_size(shape, device):
    x = torch.randn(shape, device=device)
    w = torch.randn(shape[-1], device=device)
    assert softmax(x).shape == x.shape
    assert add_rms_norm(x, x, w)[0].shape == x.shape
    assert layer_norm(x, w, w).shape == x.shape
    w.requires_grad_()
    rms_norm(x, w).sum().backward()
    assert w.grad is not None
    assert not w.grad.any()


def test_layouts(device):
    """Row strides, strided last dimensions, transposes, expansions, slices that start off a 16-byte boundary."""
    base = torch.randn(40, 64, device=device)
    w = torch.randn(64, device=device)
    views = [
        base[:, 1:34],
        base[::3, :],
        base.t(),
        base[:, ::2],
        base[:1].expand(5, 64),
        torch.randn(4, 6, 5, device=device).permute(1, 2, 0),
        base.flatten()[1:1601].view(25, 64),
    ]
    for x in views:
        same(softmax, softmaxes.reference, [x])
        same(rms_norm, rms_norms.reference, [x, w[: x.shape[-1]]])
        same(add_layer_norm, add_layer_reference, [x, x.flip(0), w[: x.shape[-1]], w[: x.shape[-1]]])


CASES = {
    "softmax": (softmax, softmaxes.reference, 1),
    "rms": (rms_norm, rms_norms.reference, 2),
    "layer": (layer_norm, layer_norms.reference, 3),
    "add rms": (add_rms_norm, add_rms_reference, 3),
    "add layer": (add_layer_norm, add_layer_reference, 4),
}


def _inputs(name, shape, device, dtype=torch.float32):
    wide = {"add rms": 2, "add layer": 2}.get(name, 1)
    total = CASES[name][2]
    tensors = [torch.randn(shape, device=device) for _ in range(wide)]
    return [t.to(dtype) for t in tensors + [torch.randn(shape[-1], device=device) for _ in range(total - wide)]]


@pytest.mark.parametrize("shape", [(5,), (3, 70), (2, 3, 4, 9), (37, 128), (2, 17000)])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, shape, device):
    ours, reference, count = CASES[name]
    inputs = _inputs(name, shape, device)
    contiguous = torch.randn(shape, device=device)
    transposed = torch.randn(shape[::-1], device=device).permute(*reversed(range(len(shape))))
    expanded = torch.ones((), device=device).expand(shape)
    for grad in (contiguous, transposed, expanded):
        grads = (grad, torch.randn(shape, device=device))
        mine = gradients(ours, inputs, grads, range(count))
        doubles = [t.double() for t in inputs]
        true = gradients(reference, doubles, [g.double() for g in grads], range(count))
        for a, b in zip(mine, true, strict=True):
            # One element per row: the exact gradient of a normalisation is zero, what is left is rounding.
            assert (a.double() - b).abs().max().item() <= 2e-5 * max(b.abs().max().item(), 1.0)
        assert len({t.untyped_storage().data_ptr() for t in mine if t.numel()}) == len(mine)


@pytest.mark.parametrize("name", ["layer", "add rms"])
def test_every_subset_of_gradients(name, device):
    ours, reference, count = CASES[name]
    inputs = _inputs(name, (4, 30), device)
    grads = (torch.randn(4, 30, device=device), torch.randn(4, 30, device=device))
    for size in range(1, count + 1):
        for wanted in itertools.combinations(range(count), size):
            mine = gradients(ours, inputs, grads, wanted)
            true = gradients(reference, inputs, grads, wanted)
            assert all(error(a, b) < 1e-5 for a, b in zip(mine, true, strict=True))


def test_gradient_of_the_sum_alone_and_of_both(device):
    x, r = (torch.randn(6, 50, device=device, requires_grad=True) for _ in range(2))
    w = torch.randn(50, device=device, requires_grad=True)
    for pick in (lambda y, s: s.sum(), lambda y, s: (y * s).sum(), lambda y, s: y.square().sum() + 2 * s.sum()):
        for t in (x, r, w):
            t.grad = None
        pick(*add_rms_norm(x, r, w)).backward()
        mine = [t.grad for t in (x, r, w)]
        for t in (x, r, w):
            t.grad = None
        pick(*add_rms_reference(x, r, w)).backward()
        for got, t in zip(mine, (x, r, w), strict=True):
            assert error(got, torch.zeros_like(got) if t.grad is None else t.grad) < 1e-5


def test_graph_is_used_twice(device):
    x = torch.randn(3, 40, device=device, requires_grad=True)
    y = softmax(x)
    y.square().sum().backward(retain_graph=True)
    once = x.grad.clone()
    y.square().sum().backward()
    assert torch.equal(x.grad, 2 * once)


def test_row_sums_keep_their_precision(device):
    rows = 1 << (16 if device == "cuda" else 9)
    x = torch.randn(rows, 8, device=device).bfloat16()
    w = torch.ones(8, device=device, dtype=torch.bfloat16, requires_grad=True)
    b = torch.zeros(8, device=device, dtype=torch.bfloat16, requires_grad=True)
    layer_norm(x, w, b).backward(torch.ones_like(x))
    assert torch.equal(b.grad.float(), torch.full((8,), float(rows), device=device))


def test_what_is_refused_runs_the_original(device):
    x = torch.randn(3, 8, device=device)
    w16 = torch.randn(8, device=device).bfloat16()
    assert softmax(x.double()).dtype == torch.float64
    rms_norm(x.double(), x[0].double())
    with contextlib.suppress(RuntimeError):  # PyTorch itself refuses the mix on some devices: the original, exactly
        rms_norm(x, w16)
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        assert layer_norm(x, x[0], x[0]).dtype == layer_norms.reference(x, x[0], x[0]).dtype
    table = counts()
    assert table["softmax"] == {"dtype": 1}
    assert table["rms_norm"] == {"dtype": 1, "mixed dtypes": 1}
    assert table["layer_norm"] == {"autocast": 1}


def test_a_bound_on_registers_reaches_the_launch():
    whole = rows_launch(4, 1024, Layout(1, 1024, 1, 4, registers=40), (), {})
    twice = twice_launch(4, 1024, Layout(1, 512, 0, 4, registers=40), (), {})
    assert whole.options["maxnreg"] == twice.options["maxnreg"] == 40
    assert not whole.fit
    assert not twice.fit
