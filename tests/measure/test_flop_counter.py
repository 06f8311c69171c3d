"""FLOPs from recorded shapes equal torch's own FlopCounterMode: matrix products, convolutions, attention."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.measure.kernel.flops import work_of
from lanewise.measure.signatures import Signature, Signatures, Tensor
from lanewise.trace.reader import read

torch = pytest.importorskip("torch")

FAMILIES = {"matmul", "convolution", "attention"}


def counted_by_torch(program: Callable[[], Any]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        program()
    return counter.get_total_flops()


def counted_from_the_trace(program: Callable[[], Any], folder: Path) -> tuple[float, dict[str, float]]:
    """FLOPs of the innermost operators that have a formula, in all and by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        program()
    path = folder / "trace.json"
    profile.export_chrome_trace(str(path))
    trace = read(path, cache=False)
    signatures = Signatures(trace)
    work = {int(event): work_of(trace.name_of(int(event)), signatures.of(int(event))) for event in trace.of(1)}
    # Composite operators (linear, matmul, conv2d) repeat what their children do: the innermost one counts.
    holders: set[int] = set()
    for event, found in work.items():
        if found and found.kind in FAMILIES:
            above = int(trace.nesting.parent[event])
            while above >= 0:
                holders.add(above)
                above = int(trace.nesting.parent[above])
    by_name: dict[str, float] = defaultdict(float)
    for event, found in work.items():
        if found and found.kind in FAMILIES and event not in holders and found.flops:
            by_name[trace.name_of(event)] += found.flops
    return sum(by_name.values()), dict(by_name)


def tensors(*shapes: tuple[int, ...], grad: bool = False, dtype: Any = None) -> list[Any]:
    return [torch.randn(*shape, requires_grad=grad, dtype=dtype) for shape in shapes]


def products() -> None:
    a, b, c = tensors((48, 64), (64, 32), (48, 32))
    torch.mm(a, b)
    torch.addmm(c, a, b)
    torch.addmm(c[0], a, b)
    x, y = tensors((5, 48, 64), (5, 64, 32))
    torch.bmm(x, y)
    torch.baddbmm(c.expand(5, 48, 32), x, y)
    torch.matmul(x, b)
    torch.matmul(x[None], y[None])


def linear() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10, bias=False))
    layer(torch.randn(3, 7, 64)).sum().backward()


def convolutions() -> None:
    x = torch.randn(4, 8, 20, 18)
    for layer in (
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.Conv2d(8, 16, (5, 3), stride=2, dilation=2, bias=False),
        torch.nn.Conv2d(8, 16, 3, groups=4),
        torch.nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1),
    ):
        layer(x)
    torch.nn.Conv1d(8, 4, 5)(torch.randn(2, 8, 50))
    torch.nn.Conv3d(8, 4, 3)(torch.randn(2, 8, 10, 12, 14))


def convolution_training() -> None:
    first, second = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Conv2d(8, 12, 3, padding=1)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    model(torch.randn(4, 3, 21, 21)).sum().backward()


def recorded(*shapes: tuple[int, ...], mask: tuple[int, str] = (0, "")) -> Signature:
    """A call of a GPU operator with tensors of these shapes, and one concrete value."""
    inputs = (*(Tensor(shape, "float") for shape in shapes), *(None,) * 20)
    concrete = [""] * len(inputs)
    concrete[mask[0]] = mask[1]
    return Signature(inputs, tuple(concrete))


Q, K, V = (2, 4, 32, 16), (2, 4, 24, 16), (2, 4, 24, 8)


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Heads after the sequence, as the kernels of flash and efficient attention take them."""
    return (shape[0], shape[2], shape[1], shape[3])


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("aten::_scaled_dot_product_flash_attention", True),
        ("aten::_scaled_dot_product_efficient_attention", True),
        ("aten::_scaled_dot_product_cudnn_attention", True),
        ("aten::_cudnn_attention_forward", True),
        ("aten::_flash_attention_forward", False),
        ("aten::_efficient_attention_forward", False),
    ],
)
def test_attention_equals_the_flop_counters_formula(name: str, first: bool) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    shapes = (Q, K, V) if first else (turned(Q), turned(K), turned(V))
    forward = work_of(name, recorded(*shapes))
    assert forward is not None
    assert forward.flops == sdpa_flop_count(Q, K, V) > 0
    grad = (2, 4, 32, 8)
    backward_name = name.replace("_forward", "") + "_backward"
    backward = work_of(backward_name, recorded(grad if first else turned(grad), *shapes))
    assert backward is not None
    assert backward.flops == sdpa_backward_flop_count(grad, Q, K, V) > 0


@pytest.mark.parametrize("program", [products, linear, convolutions, convolution_training])
def test_equals_the_flop_counter(program: Callable[[], Any], tmp_path: Path) -> None:
    total, by_name = counted_from_the_trace(program, tmp_path)
    expected = counted_by_torch(program)
    assert total == expected, json.dumps(by_name, indent=1)
    assert expected > 0
