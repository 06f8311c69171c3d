"""Memory formats: the same bits and strides as PyTorch's own conversions; convolutions in channels-last memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lanewise.errors import UsageError
from lanewise.kernels import convolution_channels_last, counts, from_channels_last, reset_counts, to_channels_last
from lanewise.kernels.layouts import memory_format
from tests.kernels.helpers import error

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int16)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def _whatever_the_size(monkeypatch):
    monkeypatch.setattr(memory_format, "least_bytes", 0)
    monkeypatch.setattr(memory_format, "least_in_sample", 0)


def bits(x):
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)


def moved(ours, theirs, x):
    """Ours and PyTorch's agree in every bit and stride, and in whether x itself is given back; whether a kernel ran."""
    reset_counts()
    got, want = ours(x), theirs(x)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.stride() == want.stride()
    assert (got is x) == (want is x)
    assert torch.equal(bits(got.reshape(-1)), bits(want.reshape(-1)))
    return "kernel" in counts().get(ours.__name__, {})


def both_ways(x):
    """Which of the two conversions of x and of its result were a kernel's."""
    layout = FORMATS[x.dim()]
    there = moved(to_channels_last, lambda t: t.contiguous(memory_format=layout), x)
    back = moved(from_channels_last, lambda t: t.contiguous(), x.contiguous(memory_format=layout))
    return there, back


def numbered(shape, dtype, device):
    """Every element has bits of its own (of 16 bits: its neighbours do), NaNs with their payloads among them."""
    count = 1
    for size in shape:
        count *= size
    width = torch.int16 if dtype.itemsize == 2 else torch.int32
    step = 40503 if dtype.itemsize == 2 else 1640531527
    ramp = torch.arange(count, device=device, dtype=torch.int64) * step
    return ramp.to(width).view(dtype).reshape(shape)


sizes = st.one_of(
    st.tuples(*[st.integers(0, 5)] * 2, *[st.integers(0, 9)] * 2),
    st.tuples(*[st.integers(0, 3)] * 2, *[st.integers(0, 5)] * 3),
    st.tuples(st.integers(1, 2), st.integers(1, 140), st.integers(1, 12), st.integers(1, 14)),
)


@settings(max_examples=40, deadline=None)
@given(shape=sizes, dtype=st.sampled_from(DTYPES))
def test_conversions_are_those_of_torch(shape, dtype):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    both_ways(numbered(shape, dtype, device))


@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 20, 30),
        (3, 300, 2, 3),
        (1, 16, 5, 7),
        (2, 17, 9, 9),
        (1, 64, 13, 11),
        (2, 96, 7, 9),
        (1, 130, 17, 8),
        (2, 33, 3, 4, 5),
        (2, 2, 1, 1, 9),
    ],
)
def test_each_tile_moves_every_element(shape, device):
    assert both_ways(numbered(shape, torch.float32, device)) == (True, True)
    assert both_ways(numbered(shape, torch.bfloat16, device)) == (True, True)


@pytest.mark.parametrize(
    "shape", [(2, 1, 4, 5), (3, 7, 1, 1), (0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4), (1, 1, 1, 1, 1)]
)
def test_nothing_to_move(shape, device):
    assert both_ways(numbered(shape, torch.float32, device)) == (False, False)


@pytest.mark.parametrize("shape", [(1, 3, 20, 30), (1, 17, 9, 9), (1, 96, 7, 9), (1, 300, 2, 3)])
def test_nothing_around_the_result_is_written(shape, device, monkeypatch):
    x = torch.randn(shape, device=device)
    held = torch.full((x.numel() + 8192,), 7.0, device=device)
    monkeypatch.setattr(
        torch,
        "empty_like",
        lambda t, memory_format: held.as_strided(
            t.shape, torch.empty(t.shape, memory_format=memory_format).stride(), 4096
        ),
    )
    assert torch.equal(to_channels_last(x), x)
    assert (held[:4096] == 7).all()
    assert (held[-4096:] == 7).all()


def test_what_is_neither_contiguous_nor_channels_last_is_moved_by_torch(device):
    x = torch.randn(2, 6, 8, 10, device=device)
    for other in (x[:, ::2], x.transpose(2, 3), x[..., :7], x[:1].expand(2, 6, 8, 10), x.permute(1, 0, 2, 3)):
        assert not moved(to_channels_last, lambda t: t.contiguous(memory_format=torch.channels_last), other)
        assert not moved(from_channels_last, lambda t: t.contiguous(), other)
    assert both_ways(x[1:]) == (True, True)
    negative = torch._neg_view(x)
    assert not moved(to_channels_last, lambda t: t.contiguous(memory_format=torch.channels_last), negative)


def test_other_types_gradients_and_small_tensors_are_left_to_torch(device, monkeypatch):
    x = torch.randn(2, 6, 8, 10, device=device)
    leaf = x.clone().requires_grad_()
    to_channels_last(leaf).sum().backward()
    assert leaf.grad is not None
    to_channels_last(x.double())
    from_channels_last(x.to(torch.uint8).contiguous(memory_format=torch.channels_last))
    with FlopCounterMode(display=False):
        to_channels_last(x)
    monkeypatch.setattr(memory_format, "least_bytes", x.numel() * 4 + 1)
    to_channels_last(x)
    monkeypatch.setattr(memory_format, "least_bytes", 0)
    monkeypatch.setattr(memory_format, "least_in_sample", 6 * 8 * 10 + 1)
    to_channels_last(x)
    assert counts() == {
        "to_channels_last": {
            "dtype": 1,
            "needs gradients": 1,
            "too small": 2,
            "traced: the compiler chooses layouts itself": 1,
        },
        "from_channels_last": {"dtype": 1},
    }


@pytest.mark.parametrize("function", [to_channels_last, from_channels_last])
def test_other_ranks_have_no_channels_last(function):
    with pytest.raises(UsageError, match="4 or 5 dimensions, got 3"):
        function(torch.zeros(2, 3, 4))


def test_no_tile_is_larger_than_what_was_measured():
    for channels in (2, 3, 16, 17, 32, 64, 65, 96, 100, 128, 160, 1000):
        for positions in (2, 16, 17, 49, 3136, 1 << 20):
            for back in (False, True):
                tile = memory_format.tile_of(channels, positions, back=back)
                assert 1024 <= tile.channels * tile.positions <= 8192
                assert tile.channels & (tile.channels - 1) == 0
                assert tile.positions & (tile.positions - 1) == 0
                if min(channels, positions) <= 16:
                    assert min(tile[:2]) < 2 * min(channels, positions)


CONVOLUTIONS = {
    "images": ((2, 6, 9, 8), (5, 6, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    "strides": ((2, 4, 11, 9), (6, 4, 3, 2), (2, 3), (1, 0), (2, 1), False, (0, 0), 1),
    "groups": ((2, 6, 7, 7), (9, 2, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 3),
    "depthwise": ((2, 8, 9, 7), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 8),
    "volumes": ((2, 3, 5, 6, 7), (4, 3, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), False, (0, 0, 0), 1),
    "asymmetric volumes": ((1, 3, 6, 7, 8), (4, 3, 1, 3, 5), (1, 2, 1), (0, 1, 2), (1, 1, 1), False, (0, 0, 0), 1),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), 1),
    "transposed in groups": ((2, 4, 5, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), True, (0, 0), 2),
    "transposed volumes": ((1, 4, 3, 4, 5), (4, 2, 3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), True, (1, 0, 1), 1),
    "one channel": ((2, 1, 6, 6), (1, 1, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    "one position": ((2, 6, 3, 3), (5, 6, 3, 3), (1, 1), (0, 0), (1, 1), False, (0, 0), 1),
    "no sample": ((0, 6, 9, 8), (5, 6, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    "a signal": ((2, 3, 9), (4, 3, 3), (1,), (1,), (1,), False, (0,), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_convolutions_are_those_of_torch(name, with_bias, device):
    shape, kernel, *rest = CONVOLUTIONS[name]
    channels = kernel[1] * rest[-1] if rest[3] else kernel[0]
    x, weight = torch.randn(shape, device=device), torch.randn(kernel, device=device)
    bias = torch.randn(channels, device=device) if with_bias else None
    operator = torch.ops.lanewise.convolution_channels_last
    torch.library.opcheck(operator.default, (x, weight, bias, *rest), test_utils=("test_schema", "test_faketensor"))
    want = torch.convolution(x, weight, bias, *rest)
    exact = torch.convolution(x.double(), weight.double(), None if bias is None else bias.double(), *rest)
    meta = operator(x.to("meta"), weight.to("meta"), None if bias is None else bias.to("meta"), *rest)
    kinds = [(x, weight)]
    if name != "a signal":
        layout = FORMATS[x.dim()]
        kinds += [(x.contiguous(memory_format=layout), weight), (x, weight.contiguous(memory_format=layout))]
    for one, other in kinds:
        for function in (operator, convolution_channels_last):
            got = function(one, other, bias, *rest)
            assert got.shape == want.shape == meta.shape
            assert got.dtype == want.dtype == meta.dtype
            if function is operator or name != "a signal":
                assert got.stride() == torch.empty(want.shape).stride() == meta.stride()
            assert error(got, exact) <= max(2 * error(want, exact), 2e-3 if device == "cuda" else 1e-6)
            assert not torch.equal(got, torch.zeros_like(got)) or not got.numel()


def test_a_convolution_moves_what_it_reads_and_writes(device):
    x, weight = torch.randn(2, 8, 9, 10, device=device), torch.randn(6, 8, 3, 3, device=device)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    convolution_channels_last(x, weight, None, *rest)
    seen = counts()
    assert seen["convolution_channels_last"] == {"kernel": 1}
    assert seen["to_channels_last"] == {"kernel": 2}
    assert seen["from_channels_last"] == {"kernel": 1}


def test_convolutions_that_are_left_to_torch(device):
    x, weight = torch.randn(2, 8, 9, 10, device=device), torch.randn(6, 8, 3, 3, device=device, requires_grad=True)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    convolution_channels_last(x, weight, None, *rest).sum().backward()
    assert weight.grad is not None
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        convolution_channels_last(x, weight, None, *rest)
        assert torch.ops.lanewise.convolution_channels_last(x, weight, None, *rest).dtype == torch.float32
    assert counts()["convolution_channels_last"] == {"autocast": 1, "needs gradients": 1}


def test_the_operator_has_no_gradient(device):
    x, weight = torch.randn(2, 8, 9, 10, device=device), torch.randn(6, 8, 3, 3, device=device, requires_grad=True)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    out = torch.ops.lanewise.convolution_channels_last(x, weight, None, *rest)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        out.sum().backward()


def test_wrong_convolutions_are_torchs_errors(device):
    x, weight = torch.randn(2, 8, 9, 10, device=device), torch.randn(6, 7, 3, 3, device=device)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    for function in (convolution_channels_last, torch.ops.lanewise.convolution_channels_last):
        with pytest.raises(RuntimeError, match="channels"):
            function(x, weight, None, *rest)
        with pytest.raises(RuntimeError, match="dimensions"):
            function(x, weight[0], None, *rest)


@pytest.mark.parametrize("name", ["images", "groups", "depthwise", "volumes", "transposed"])
def test_operations_are_counted_as_torch_counts_them(name, device):
    shape, kernel, *rest = CONVOLUTIONS[name]
    x, weight = torch.randn(shape, device=device), torch.randn(kernel, device=device)
    counted = []
    for function in (torch.convolution, torch.ops.lanewise.convolution_channels_last, convolution_channels_last):
        with FlopCounterMode(display=False) as counter:
            function(x, weight, None, *rest)
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] == counted[2] > 0


def test_compiled_code_calls_the_operator(device):
    x, weight = torch.randn(2, 8, 9, 10, device=device), torch.randn(6, 8, 3, 3, device=device)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)

    def program(x, weight):
        return torch.ops.lanewise.convolution_channels_last(x.relu(), weight, None, *rest).relu()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    got, want = compiled(x, weight), program(x, weight)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()
    assert counts()["to_channels_last"] == {"kernel": 4}
