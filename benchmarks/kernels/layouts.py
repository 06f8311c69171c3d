"""What channels-last memory costs and gains convolutions: `python -m benchmarks.kernels.layouts OUT.json`.

ID kernels-layouts. Conversions of contiguous fp32 tensors and back, by PyTorch ("eager") and by the kernel whatever the
size ("lanewise"), which is how `lanewise.kernels.layouts.memory_format.least_bytes` was chosen. Convolutions of contiguous
tensors with a contiguous result: as they are ("eager"), in channels-last memory with PyTorch's conversions ("torch
layouts"), and with ours ("lanewise"). Device time, cold inputs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from benchmarks.kernels.cases.case import error, randn
from benchmarks.kernels.measuring import device_options, device_times, machine

from lanewise.kernels import convolution_channels_last, cost, from_channels_last, to_channels_last
from lanewise.kernels.layouts import convolution, memory_format

FP32 = torch.float32
CONVERSIONS = (
    (16, 64, 1024, 1024),
    (16, 128, 512, 512),
    (16, 32, 64, 64, 64),
    (16, 3, 64, 64, 64),
    (32, 96, 56, 56),
    (16, 64, 56, 56),
    (8, 64, 56, 56),
    (8, 3, 224, 224),
    (64, 512, 7, 7),
)


class Convolution(NamedTuple):
    """Sizes of input and weight, padding, whether transposed, groups."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    padding: tuple[int, ...]
    transposed: bool = False
    groups: int = 1


CONVOLUTIONS = {
    "3-D 3x3x3, 32 to 64": Convolution((8, 32, 48, 64, 64), (64, 32, 3, 3, 3), (1, 1, 1)),
    "3-D 3x5x7, 3 to 64": Convolution((8, 3, 16, 128, 128), (64, 3, 3, 5, 7), (0, 0, 0)),
    "transposed 3-D 3x3x3, 48 to 48": Convolution((8, 48, 64, 64, 64), (48, 48, 3, 3, 3), (0, 0, 0), True),
    "transposed 2-D 3x3, 64 to 64": Convolution((8, 64, 1024, 1024), (64, 64, 3, 3), (0, 0), True),
    "transposed 2-D 3x7, 32 to 32": Convolution((8, 32, 512, 1024), (32, 32, 3, 7), (1, 3), True),
    "depthwise 2-D 3x3, 64": Convolution((16, 64, 512, 512), (64, 1, 3, 3), (0, 0), groups=64),
}


class Measured(NamedTuple):
    """What is timed: arms over input sets, the first being what the others are compared with."""

    name: str
    make: Callable[[int], tuple[Any, ...]]
    arms: dict[str, Callable[..., torch.Tensor]]
    cost: cost.Cost


def _conversions() -> Iterator[Measured]:
    for shape in CONVERSIONS:
        layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        size = "x".join(map(str, shape))
        there = {"eager": lambda x, to=layout: x.contiguous(memory_format=to), "lanewise": to_channels_last}
        back = {"eager": lambda x: x.contiguous(), "lanewise": from_channels_last}

        def make(i: int, shape: tuple[int, ...] = shape) -> tuple[torch.Tensor]:
            return (randn(*shape, seed=i, dtype=FP32),)

        def turned(i: int, make: Any = make, to: torch.memory_format = layout) -> tuple[torch.Tensor]:
            return (make(i)[0].contiguous(memory_format=to),)

        moved = cost.layout_cost(torch.Size(shape).numel(), 4)
        yield Measured(f"to channels-last {size}", make, there, moved)
        yield Measured(f"from channels-last {size}", turned, back, moved)


def _convolutions() -> Iterator[Measured]:
    for name, (x, weight, padding, transposed, groups) in CONVOLUTIONS.items():
        ones, layout = (1,) * len(padding), torch.channels_last if len(padding) == 2 else torch.channels_last_3d
        rest = (None, ones, padding, ones, transposed, (0,) * len(padding), groups)

        def make(i: int, x: tuple[int, ...] = x, w: tuple[int, ...] = weight) -> tuple[torch.Tensor, torch.Tensor]:
            scale = torch.Size(w[1:]).numel() ** -0.5
            return randn(*x, seed=i, dtype=FP32), randn(*w, seed=i + 1, scale=scale, dtype=FP32)

        def by_torch(x: torch.Tensor, w: torch.Tensor, to: Any = layout, rest: Any = rest) -> torch.Tensor:
            moved = x.contiguous(memory_format=to), w.contiguous(memory_format=to)
            return torch.convolution(*moved, *rest).contiguous()

        arms: dict[str, Callable[..., torch.Tensor]] = {
            "eager": lambda x, w, rest=rest: convolution.reference(x, w, *rest),
            "torch layouts": by_torch,
            "lanewise": lambda x, w, rest=rest: convolution_channels_last(x, w, *rest),
        }
        shapes = (torch.empty(size, device="meta") for size in (x, weight))
        out = convolution.reference(*shapes, *rest)
        elements = sum(torch.Size(size).numel() for size in (x, weight, out.shape))
        points = torch.Size((x if transposed else out.shape)[2:]).numel()
        flop = 2.0 * x[0] * points * torch.Size(weight).numel()
        yield Measured(name, make, arms, cost.Cost(flop, 4.0 * elements))


def main() -> None:
    options = device_options(__doc__)
    start = time.perf_counter()
    document: dict[str, Any] = {"machine": machine(), "clock": "device: CUDA graph over rotated inputs", "cases": []}
    shipped = memory_format.least_bytes
    for least, cases in ((shipped, _convolutions()), (0, _conversions())):
        memory_format.least_bytes = least
        for case in cases:
            if time.perf_counter() - start > options.seconds:
                break
            inputs = case.make(0)
            want = case.arms["eager"](*inputs)
            wrong = error(case.arms["lanewise"](*inputs), want)
            del inputs, want
            samples = device_times(case.arms, case.make, rounds=options.rounds, target_us=1000, max_bytes=4 << 30)
            arms = {arm: sample.summary() for arm, sample in samples.items()}
            document["cases"].append(
                {"name": case.name, "arms": arms, "error": wrong, "bytes": case.cost.bytes, "flop": case.cost.flop}
            )
            medians = "  ".join(f"{arm} {sample.median:.1f}" for arm, sample in samples.items())
            speed = case.cost.bytes / samples["lanewise"].median / 1e3
            print(f"{case.name:44} us: {medians}  {speed:.0f} GB/s  off by {wrong:.1e}", flush=True)
            options.out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
