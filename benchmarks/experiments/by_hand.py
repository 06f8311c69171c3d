"""Times one program by hand, without and with torch's own profiler: what the recorder's distortion is checked against.

Knows nothing of lanewise. Two arms:

    hand    un-profiled steps, then profiled ones, as anyone would time them
    null    the same with the profiler left out: what a second block of the same process differs by itself

A step is one turn of the program's loop. There is no schedule and no `profiler.step()`: marking a step is not the
program's work, takes a different time in every tool, is as long as the whole step where steps are tiny, and leaves the
caches cold for the next one.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

FIRST, PLAIN, ACTIVE, UNSETTLED = 3, 30, 40, 20
"""Steps passed, timed without the profiler, recorded, and how many of those are left out."""


def matmul_add(device: str) -> Callable[[], Any]:
    """`matmul_add.py --size 64`."""
    call = runpy.run_path(str(EXAMPLES / "matmul_add.py"))["matmul_add"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, w, b = (torch.randn(64, 64, device=device, dtype=dtype) for _ in range(3))
    return lambda: call(x, w, b)


def mlp(device: str) -> Callable[[], Any]:
    """`mlp.py --kind swiglu`."""
    build = runpy.run_path(str(EXAMPLES / "mlp.py"))["build"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = build("swiglu", 256, 1024).to(device, dtype)
    x = torch.randn(32, 1, 256, device=device, dtype=dtype)
    return lambda: model(x)


def _decoder(device: str) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
    names = runpy.run_path(str(EXAMPLES / "llm.py"))
    shape = names["SHAPES"]["tiny"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = names["Decoder"](shape, 128).to(dtype)
        tokens = torch.randint(0, shape.vocabulary, (1, 16))
        positions = torch.arange(128)
    return model, tokens, positions, names


def llm_train(device: str) -> Callable[[], Any]:
    """`llm.py train --shape tiny --prompt 16 --optimizer loop`."""
    model, tokens, positions, _ = _decoder(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        logits = model(tokens, positions[:16])
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def llm_prefill(device: str) -> Callable[[], Any]:
    """`llm.py prefill --shape tiny --prompt 16`."""
    model, tokens, positions, _ = _decoder(device)
    model.eval()
    return lambda: model(tokens, positions[:16])


PROGRAMS = {"matmul_add": matmul_add, "mlp": mlp, "llm_prefill": llm_prefill, "llm_train": llm_train}


def timed(step: Callable[[], Any], count: int) -> list[float]:
    """Microseconds that each of `count` steps takes."""
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


def measure(program: str, arm: str, device: str) -> dict[str, Any]:
    """Times of both blocks, in this process."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.manual_seed(0)
    step = PROGRAMS[program](device)
    with torch.set_grad_enabled(program.endswith("train")):
        timed(step, FIRST)
        wait()
        plain = timed(step, PLAIN)
        wait()
        if arm == "null":
            second = timed(step, ACTIVE)
        else:
            with torch.profiler.profile(record_shapes=True):
                second = timed(step, ACTIVE)
                wait()
        wait()
    return {"plain_us": plain, "second_us": second[UNSETTLED:]}
