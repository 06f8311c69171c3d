"""Trace files in Kineto's layout, small enough to be written by a test."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

CARD = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0, "warpSize": 32}


def write_trace(
    path: Path,
    *,
    seed: int = 1,
    steps: int = 12,
    kernels: tuple[tuple[str, str, float], ...] = (("aten::mm", "gemm_kernel", 20.0), ("aten::add", "add_kernel", 5.0)),
    host_us: float = 20.0,
    card: dict[str, Any] | None = None,
    device: bool = True,
) -> Path:
    """A trace of a program that runs `kernels` (operator, name, us) per step; host time per operator is `host_us`."""
    draw = random.Random(seed)
    events: list[dict[str, Any]] = []
    now, free, correlation = 1000.0, 0.0, 1
    for step in range(steps):
        begin = now
        for operator, name, us in kernels:
            length = host_us * draw.gauss(1, 0.01)
            events.append(_row("cpu_op", operator, 1, now, length))
            if device:
                events.append(_row("cuda_runtime", "cudaLaunchKernel", 1, now + 2, 4.0, correlation=correlation))
                start = max(free, now + 8)
                took = us * draw.gauss(1, 0.01)
                free = start + took
                where = {"device": 0, "stream": 7, "grid": [264, 1, 1], "block": [128, 1, 1]}
                events.append({**_row("kernel", name, 7, start, took, correlation=correlation, **where), "pid": 0})
                correlation += 1
            now += length + 1
        events.append(_row("user_annotation", f"ProfilerStep#{step + 2}", 1, begin - 1, now - begin + 1))
        now += 5
    content: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}
    if device:
        content["deviceProperties"] = [card or CARD]
    path.write_text(json.dumps(content))
    return path


def _row(category: str, name: str, thread: int, at: float, length: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": round(at, 3),
        "dur": round(length, 3),
        "args": args,
    }
