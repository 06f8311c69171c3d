"""Single-precision products in three of TF32 against cuBLAS's own: `python -m benchmarks.kernels.splits OUT.json`.

ID kernels-splits. Linear layers with bias of models in single precision, and a square one; in turns, and how far both are
from double precision. Device time, inputs in rotation.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch
from benchmarks.kernels.cases.case import error, randn
from benchmarks.kernels.measuring import device_options, device_times, machine

from lanewise.kernels import split_product
from lanewise.kernels.gemm.split_product import reference

SHAPES = (
    (3136, 2048, 512),
    (3136, 512, 2048),
    (8192, 256, 196),
    (8192, 196, 256),
    (25088, 384, 96),
    (25088, 96, 384),
    (25088, 288, 96),
    (6272, 768, 192),
    (6272, 192, 768),
    (1568, 1536, 384),
    (1568, 384, 1536),
    (392, 3072, 768),
    (392, 768, 3072),
    (4096, 4096, 4096),
)
"""Rows, results and inner dimension: MLP-Mixer S/16, ConvNeXt-T and Swin-T at batches of 8 and 16."""


def main() -> None:
    options = device_options(__doc__)
    start = time.perf_counter()
    document: dict[str, Any] = {"machine": machine(), "clock": "device: CUDA graph over rotated inputs", "cases": []}
    for m, n, k in SHAPES:
        if time.perf_counter() - start > options.seconds:
            break

        def make(i: int, m: int = m, n: int = n, k: int = k) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            weight = randn(n, k, seed=i + 1, scale=k**-0.5, dtype=torch.float32).T
            return randn(m, k, seed=i, dtype=torch.float32), weight, randn(n, seed=i + 2, dtype=torch.float32)

        inputs = make(0)
        truth = reference(*(one.double() for one in inputs))
        errors = {"cublas": error(reference(*inputs), truth), "lanewise": error(split_product(*inputs), truth)}
        arms = {"cublas": reference, "lanewise": split_product}
        samples = device_times(arms, make, rounds=options.rounds, target_us=1000, max_bytes=1 << 30)
        medians = {arm: sample.summary() for arm, sample in samples.items()}
        document["cases"].append({"shape": [m, n, k], "arms": medians, "errors": errors})
        ratio = samples["cublas"].median / samples["lanewise"].median
        print(f"{m}x{n}x{k:5}  {ratio:.2f} of cuBLAS's speed, errors {errors}", flush=True)
        options.out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
