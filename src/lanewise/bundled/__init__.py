"""Small real traces that ship with lanewise, for `lanewise demo`.

Recorded by this project on one NVIDIA H100 80GB HBM3 (torch 2.11.0+cu130, driver 580), each with the step time measured
without the profiler in its metadata.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["BUNDLED", "bundled_path"]

BUNDLED: dict[str, str] = {
    "mnist": "one training step of the MNIST example's network, batch 64: host-bound, with source lines",
    "matmul-small": "torch.add(torch.matmul(x, w), b) at size 64: the GPU waits for Python",
    "matmul-large": "the same at size 4096: the GPU is the bottleneck",
    "item-loop": "fifty .item() calls in every step",
}


def bundled_path(name: str) -> Path:
    """Path of a bundled trace; KeyError for a name that is not in BUNDLED."""
    if name not in BUNDLED:
        raise KeyError(name)
    return Path(str(files(__name__) / f"{name}.json.gz"))
