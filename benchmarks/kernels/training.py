"""From which size on do kernels pay where gradients are recorded? `python -m benchmarks.kernels.training OUT.json`.

ID kernels-training. Forward and backward pass of the norms and of softmax by PyTorch ("eager") and by the kernels
whatever the size ("kernel"): wall time of back-to-back calls, which is the host's cost for small inputs and the device's
for large ones, and device time alone (a CUDA graph over rotated inputs).
`lanewise.kernels.dispatch.eligibility.train_from_elements` is the size from which on the wall time of every kernel is
below eager's.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.kernels.measuring import device_times, host_times, machine

from lanewise.kernels import layer_norm, rms_norm, softmax
from lanewise.kernels.dispatch import eligibility as guard
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes

COLS = 4096


def _both(function: Callable[..., torch.Tensor], leaves: int) -> Callable[..., Any]:
    def run(dy: torch.Tensor, *inputs: torch.Tensor) -> Any:
        return torch.autograd.grad(function(*inputs[:leaves]), inputs[:leaves], dy)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--elements", type=int, nargs="*", default=[1 << power for power in (24, 25, 22, 26, 23, 21)])
    parser.add_argument("--seconds", type=float, default=60, help="start no size after this many seconds")
    options = parser.parse_args()
    start = time.perf_counter()
    document: dict[str, Any] = {
        "machine": machine(),
        "clock": "wall: back-to-back calls, 20 a round; device: CUDA graph over rotated inputs",
        "cases": [],
    }
    guard.train_from_elements = 0
    kernels = {
        "rms_norm": (rms_norm, rms_norms.reference, 2),
        "layer_norm": (layer_norm, layer_norms.reference, 3),
        "softmax": (softmax, softmaxes.reference, 1),
    }
    for elements in options.elements:
        if time.perf_counter() - start > options.seconds:
            break
        rows, power = elements // COLS, f"{math.log2(elements):.4g}"

        def make(i: int, rows: int = rows) -> tuple[torch.Tensor, ...]:
            sizes = ((rows, COLS), (rows, COLS), (COLS,), (COLS,))
            made = [torch.randn(size, device="cuda").to(torch.bfloat16) for size in sizes]
            return (made[0], *(tensor.requires_grad_() for tensor in made[1:]))

        for name, (ours, reference, leaves) in kernels.items():
            arms = {"eager": _both(reference, leaves), "kernel": _both(ours, leaves)}
            wall = host_times(arms, make(0), calls=20, rounds=11)
            device = device_times(arms, make, rounds=5, target_us=1000)
            document["cases"].append(
                {
                    "name": f"{name} forward and backward 2^{power} elements",
                    "wall": {arm: samples.summary() for arm, samples in wall.items()},
                    "device": {arm: samples.summary() for arm, samples in device.items()},
                }
            )
            medians = {arm: (round(wall[arm].median, 1), round(device[arm].median, 1)) for arm in arms}
            print(name, f"2^{power}", "wall, device:", medians, flush=True)
            options.out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
