"""Times one program by hand, with and without torch's own profiler: what the recorder's distortion is checked against.

Knows nothing of lanewise. Waits for an order as `one.py` does, so that both are measured in the same kind of process.
"""

from __future__ import annotations

import json
import runpy
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def make_step(program: str, device: str):
    """The step of the example, built as the example builds it."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if program == "matmul_add":
        matmul_add = runpy.run_path(str(ROOT / "examples" / "matmul_add.py"))["matmul_add"]
        x, w, b = (torch.randn(64, 64, device=device, dtype=dtype) for _ in range(3))

        def step() -> None:
            matmul_add(x, w, b)

        return step
    build = runpy.run_path(str(ROOT / "examples" / "mlp.py"))["build"]
    model = build("swiglu", 256, 1024).to(device, dtype)
    x = torch.randn(32, 1, 256, device=device, dtype=dtype)

    def step() -> None:
        model(x)

    return step


def timed(step, count: int, profiler=None) -> list[float]:
    """Microseconds that each of `count` steps takes; what `profiler.step()` takes is not part of a step."""
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if profiler is not None:
            profiler.step()
    return times


def main() -> None:
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.synchronize()
    print("ready", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.strip():
        return
    order = json.loads(line)
    step = make_step(order["program"], "cuda" if on_gpu else "cpu")
    with torch.no_grad():
        timed(step, 3)
        if on_gpu:
            torch.cuda.synchronize()
        if order["arm"] == "plain":
            times = timed(step, 50)
        else:
            schedule = torch.profiler.schedule(wait=0, warmup=2, active=40, repeat=1)
            with torch.profiler.profile(schedule=schedule, record_shapes=True) as profiler:
                times = timed(step, 40, profiler)[22:]
    print(json.dumps({"median_us": statistics.median(times), "n": len(times)}), flush=True)


if __name__ == "__main__":
    main()
