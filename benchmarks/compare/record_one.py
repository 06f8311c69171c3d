"""Records one of the programs of `alarms.py` in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lanewise.capture.recorder import record

STEPS = 110


def build(program: str, device: str) -> Callable[[], object]:
    """The step of `mlp`, `attention` or `train`."""
    torch.manual_seed(0)
    functional, nn = torch.nn.functional, torch.nn
    if program == "attention":
        query = torch.randn(2, 4, 64, 32, device=device)

        def attend() -> None:
            with torch.no_grad():
                functional.scaled_dot_product_attention(query, query, query, is_causal=True).add_(1).softmax(-1)

        return attend
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 128)).to(device)
    batch = torch.randn(32, 128, device=device)
    if program == "mlp":
        return torch.no_grad()(lambda: model(batch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return train


def record_one(program: str, out: str) -> dict[str, Any]:
    """The trace's path, or why there is none."""
    torch.set_num_threads(1)
    step = build(program, "cuda" if torch.cuda.is_available() else "cpu")
    with record(out=out, name=program) as recorder:
        for _ in range(STEPS):
            step()
            recorder.step()
    return {"trace": str(recorder.path)} if recorder.path else {"error": recorder.problem}
