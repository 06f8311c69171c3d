"""Two small programs to record on any machine with torch; packaged, so that `lanewise demo` needs no files."""

from __future__ import annotations

import os
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.recorder import record

__all__ = ["matmul_add", "mlp_training", "record_demo"]

_STEPS = 60


def record_demo(name: str = "mlp", out: str | os.PathLike[str] = "lanewise-out") -> Any:
    """Records `matmul_add` or `mlp` on the CPU into the folder `out` and returns its Report.

    Takes about a second once torch is loaded. The trace stays, so that the report's next commands have something to
    read; an earlier one is kept.
    """
    with record(out=out, name=f"demo-{name}") as recorder:
        (matmul_add if name == "matmul_add" else mlp_training)(recorder.step)
    return recorder.explain()


def matmul_add(step: Any, size: int = 64) -> None:
    """torch.add(torch.matmul(x, w), b), `step()` after each."""
    torch = torch_part()
    x, w, b = (torch.randn(size, size) for _ in range(3))
    for _ in range(_STEPS):
        torch.add(torch.matmul(x, w), b)
        step()


def mlp_training(step: Any, size: int = 128) -> None:
    """A GELU MLP trained with SGD, `step()` after each step."""
    torch = torch_part()
    nn = torch.nn
    model = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(32, size)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        step()
