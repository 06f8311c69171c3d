"""The registered operators, the tuning cache and the costs."""

from __future__ import annotations

import pytest
import torch
from benchmarks.kernels.defaults import behind
from benchmarks.kernels.report import measured
from torch.utils.flop_counter import FlopCounterMode

from lanewise.kernels import add_layer_norm, add_rms_norm, cost, layer_norm, mlp, rms_norm, softmax
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.rows.row_layout import Layout, alignment, layout


def test_operators_are_well_formed(device):
    x, r = (torch.randn(4, 64, device=device, requires_grad=True) for _ in range(2))
    w, b = (torch.randn(64, device=device, requires_grad=True) for _ in range(2))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for name, args in {
        "softmax": (x, 1.0, None),
        "rms_norm": (x, w, 1e-5),
        "add_rms_norm": (x, r, w, 1e-5),
        "layer_norm": (x, w, b, 1e-5),
        "add_layer_norm": (x, r, w, b, 1e-5),
    }.items():
        torch.library.opcheck(getattr(torch.ops.lanewise, name).default, args, test_utils=checks)


# What a fake tensor only warns of is an error when torch.compile traces.
@pytest.mark.filterwarnings("error:Accessing the data pointer")
@pytest.mark.parametrize("rms", [False, True])
def test_backward_operators_can_be_traced(device, rms):
    x, dy, ds = (torch.randn(4, 64, device=device) for _ in range(3))
    w, mean, rstd = torch.randn(64, device=device), torch.zeros(4, device=device), torch.ones(4, device=device)
    for name, args in {
        "softmax_backward": (dy, x, 1.0),
        "norm_backward": (dy, ds, x, w, mean, rstd, rms, True, not rms),
    }.items():
        torch.library.opcheck(
            getattr(torch.ops.lanewise, name).default, args, test_utils=("test_schema", "test_faketensor")
        )


def test_operators_have_the_gradients_of_the_functions(device):
    x, r = (torch.randn(4, 40, device=device, requires_grad=True) for _ in range(2))
    w, b = (torch.randn(40, device=device, requires_grad=True) for _ in range(2))
    ops = torch.ops.lanewise
    grad = torch.randn(4, 40, device=device)
    pairs = [
        (ops.softmax(x, 1.0, None), softmax(x), (x,)),
        (ops.rms_norm(x, w, 1e-6)[0], rms_norm(x, w), (x, w)),
        (ops.add_rms_norm(x, r, w, 1e-6)[0], add_rms_norm(x, r, w)[0], (x, r, w)),
        (ops.layer_norm(x, w, b, 1e-5)[0], layer_norm(x, w, b), (x, w, b)),
        (ops.add_layer_norm(x, r, w, b, 1e-5)[0], add_layer_norm(x, r, w, b)[0], (x, r, w, b)),
    ]
    for one, other, leaves in pairs:
        assert torch.equal(one, other)
        for a, c in zip(torch.autograd.grad(one, leaves, grad), torch.autograd.grad(other, leaves, grad), strict=True):
            assert torch.equal(a, c)


def test_flop_counter_sees_the_kernels(device):
    x, w = torch.randn(4, 64, device=device), torch.randn(64, device=device)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    small = [torch.randn(shape, device=device, dtype=dtype) for shape in ((8, 16), (32, 16), (16, 32))]
    with FlopCounterMode(display=False) as counter:
        softmax(x)
        rms_norm(x, w)
        mlp(small[0], small[1], None, small[2], None)
    assert counter.get_total_flops() == 5 * 256 + 5 * 256 + 2 * 8 * 32 * 32


def test_linear_cost_agrees_with_the_flop_counter():
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.linear(torch.randn(6, 8), torch.randn(10, 8))
    assert counter.get_total_flops() == cost.linear_cost(6, 10, 8, 4).flop
    assert cost.gated_linear_cost(6, 10, 8, 2).flop == 2 * cost.linear_cost(6, 10, 8, 2).flop


def test_floor_of_a_card():
    card = cost.card_named("NVIDIA H100 80GB HBM3")
    assert card is not None
    assert cost.card_named("NVIDIA H100 of another kind") is None
    assert cost.softmax_cost(8192, 4096, 2).floor_us(card) == pytest.approx(2 * 8192 * 4096 * 2 / 3.35e6, rel=1e-6)
    assert cost.linear_cost(8192, 8192, 8192, 2).floor_us(card) == pytest.approx(1111, rel=1e-3)


def test_tuning_is_kept_per_card_and_source(monkeypatch, tmp_path):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    tuning.forget()
    default, better = layout(4096), Layout(1, 4096, 1, 16)
    assert tuning.pick("softmax", ("bf16", 4096), default) == default
    tuning.record("softmax", ("bf16", 4096), better)
    tuning.forget()
    assert tuning.pick("softmax", ("bf16", 4096), default) == better
    tuning.forget()
    monkeypatch.setattr(tuning, "source_hash", lambda: "another source")
    assert tuning.pick("softmax", ("bf16", 4096), default) == default
    tuning.cache_path().write_text("not json")
    tuning.forget()
    assert tuning.pick("softmax", ("bf16", 4096), default) == default
    tuning.forget()


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("crowd", ["1/8", "1", "3", "32", "more"])
@pytest.mark.parametrize("kernel", ["softmax", "rms_norm", "layer_norm", "add_norm", "softmax_backward"])
def test_layouts_hold_every_row(kernel, crowd, itemsize):
    for cols in (1, 15, 257, 1000, 1024, 2049, 6144, 16384, 16385, 32768, 32769, 50257, 65537, 70001, 262144, 1 << 20):
        shape = layout(cols, kernel, itemsize, crowd=crowd)
        assert shape.parts == 0 or shape.parts * shape.block >= cols
        assert shape.block * shape.rows <= 65536
        assert shape.inner == 0 or (shape.block % shape.inner == 0 and shape.inner & (shape.inner - 1) == 0)
        assert 1 <= shape.warps <= 32


def test_strides_have_the_largest_divisor_that_triton_does_not_see():
    assert [
        alignment(sizes) for sizes in ((1000,), (1000, 1000, 0), (1000, 1004), (257,), (1024, 1024), (6,), (0,))
    ] == [*(8, 8, 4, 1, 1, 2, 1)]


def test_what_ships_untuned_is_close_to_the_fastest_candidate():
    """In the result files of the card that the defaults are for."""
    ratios = {name: behind(case) for name, (_, case) in measured().items()}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    assert len(known) > 60
    assert max(known.values()) < 1.03, known


def test_a_product_without_bias_may_leave_it_out() -> None:
    a, b = torch.randn(4, 3), torch.randn(3, 5)
    assert torch.allclose(torch.ops.lanewise.split_product(a, b), a @ b, atol=1e-5)
