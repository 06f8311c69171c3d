"""Memory formats on a device: sizes that pay, more elements than 32 bits count, long axes, graphs, compiled code."""

from __future__ import annotations

import pytest
import torch

from lanewise.kernels import convolution_channels_last, counts, from_channels_last, to_channels_last
from lanewise.kernels.layouts import memory_format
from tests.kernels.helpers import error

pytestmark = pytest.mark.gpu


def both_ways(x: torch.Tensor) -> None:
    """The kernels take x there and back; each element has the place and the bits that PyTorch gives it."""
    layout = memory_format.format_of(x)
    there = to_channels_last(x)
    assert there.stride() == torch.empty(x.shape, device="meta", memory_format=layout).stride()
    assert torch.equal(there, x)
    back = from_channels_last(there)
    assert back.stride() == torch.empty(x.shape, device="meta").stride()
    assert torch.equal(back, x)
    assert counts() == {"from_channels_last": {"kernel": 1}, "to_channels_last": {"kernel": 1}}


def ramp(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Neighbours, and what lies a power of two apart, differ."""
    x = torch.empty(shape, dtype=dtype, device="cuda")
    flat = x.view(-1)
    for part in range(0, x.numel(), 1 << 28):
        size = min(1 << 28, x.numel() - part)
        flat[part : part + size] = (torch.arange(part, part + size, device="cuda") * 40503 % 32749).to(dtype)
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int16])
@pytest.mark.parametrize(
    "shape",
    [(4, 64, 256, 257), (2, 128, 300, 301), (3, 96, 200, 211), (8, 3, 640, 641), (3, 33, 40, 50, 60), (64, 5000, 7, 7)],
)
def test_every_tile(shape, dtype):
    both_ways(ramp(*shape, dtype=dtype))


@pytest.mark.parametrize(
    "shape", [(1, 3, 30000, 30000), (70_000, 16, 8, 16), (1, 4_300_000, 1, 17), (2, 5, 3, 1, 1_500_000)]
)
def test_long_axes_and_more_elements_than_32_bits_count(shape):
    both_ways(ramp(*shape, dtype=torch.int16))


def test_a_start_that_is_not_aligned():
    x = ramp(1 + 8 * 64 * 128 * 128)[1:].view(8, 64, 128, 128)
    assert x.data_ptr() % 16
    both_ways(x)


def test_special_values_keep_their_bits():
    bits = ramp(8, 64, 128, 128) * 65551 + 0x7F800000
    x = bits.view(torch.float32)
    assert torch.equal(from_channels_last(to_channels_last(x)).view(torch.int32), bits)


def test_another_stream_and_a_captured_graph():
    x = ramp(8, 64, 128, 128)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.equal(to_channels_last(x), x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        there = to_channels_last(x)
        back = from_channels_last(there)
    x.add_(1)
    graph.replay()
    assert torch.equal(there, x)
    assert torch.equal(back, x)


CONVOLUTIONS = {
    "volumes": ((4, 32, 32, 48, 48), (64, 32, 3, 3, 3), (1, 1, 1), False, 1),
    "transposed": ((4, 32, 256, 256), (32, 16, 3, 3), (1, 1), True, 1),
    "transposed volumes": ((4, 32, 32, 48, 48), (32, 16, 3, 3, 3), (0, 0, 0), True, 1),
    "depthwise": ((4, 64, 256, 256), (64, 1, 3, 3), (1, 1), False, 64),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_as_exact_as_torchs(name):
    shape, kernel, padding, transposed, groups = CONVOLUTIONS[name]
    ones = (1,) * len(padding)
    rest = (None, ones, padding, ones, transposed, (0,) * len(padding), groups)
    x, weight = torch.randn(shape, device="cuda"), torch.randn(kernel, device="cuda")
    want = torch.convolution(x, weight, *rest)
    exact = torch.convolution(x.double(), weight.double(), *rest)
    with torch.no_grad():
        for function in (convolution_channels_last, torch.ops.lanewise.convolution_channels_last):
            got = function(x, weight, *rest)
            assert got.stride() == want.stride()
            assert error(got, exact) <= max(2 * error(want, exact), 1e-3)  # TF32 has ten bits
    assert counts()["from_channels_last"] == {"kernel": 2}


def test_compiled_code_calls_the_operator():
    x, weight = torch.randn(4, 64, 256, 256, device="cuda"), torch.randn(64, 1, 3, 3, device="cuda")
    rest = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 64)

    def program(x, weight):
        return torch.ops.lanewise.convolution_channels_last(x + 1, weight, *rest).relu()

    got = torch.compile(program, fullgraph=True)(x, weight)
    want = program(x, weight)
    assert error(got, want) <= 1e-3
    assert got.stride() == want.stride()
    assert counts()["to_channels_last"]["kernel"] == 2
