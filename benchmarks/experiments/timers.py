"""Triton against torch by timers, not by profile: vector addition, row-wise normalisation, matrix products.

Two clocks as the measurement protocol asks. *Device*: round-robin calls over copies of the inputs that together
exceed the L2 cache three times, captured in one CUDA graph: no launch cost, cold cache. *Host*: wall time per call
with launches. Arms are interleaved in rounds of random order; medians and quantiles over rounds are stored with the
raw samples.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import softmax as softmax_example
import vector_add as vector_add_example

ROUNDS = 12
Arm = Callable[[int], Any]


@triton.jit
def rms_norm_rows(x, weight, out, columns, eps, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, TILE)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    scaled = values * scale * tl.load(weight + offsets, inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + offsets, scaled.to(out.dtype.element_ty), inside)


GEMM_TILES = [
    triton.Config({"M": m, "N": n, "K": k, "GROUP": 8}, num_warps=w, num_stages=s)
    for m, n, k, w, s in [(128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (64, 256, 64, 4, 4)]
]


@triton.autotune(configs=GEMM_TILES, key=["rows", "columns", "inner"])
@triton.jit
def gemm(
    a,
    b,
    c,
    rows,
    columns,
    inner,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    GELU: tl.constexpr,
):
    program = tl.program_id(0)
    across = tl.cdiv(columns, N)
    group = program // (GROUP * across)
    first = group * GROUP
    height = min(tl.cdiv(rows, M) - first, GROUP)
    m = first + (program % (GROUP * across)) % height
    n = (program % (GROUP * across)) // height
    at_m, at_n, at_k = (m * M + tl.arange(0, M)) % rows, (n * N + tl.arange(0, N)) % columns, tl.arange(0, K)
    left = a + at_m[:, None] * inner + at_k[None, :]
    right = b + at_k[:, None] * columns + at_n[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, inner, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * columns
    if GELU:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    to_m, to_n = m * M + tl.arange(0, M), n * N + tl.arange(0, N)
    inside = (to_m[:, None] < rows) & (to_n[None, :] < columns)
    tl.store(c + to_m[:, None] * columns + to_n[None, :], total.to(c.dtype.element_ty), inside)


def triton_gemm(a: torch.Tensor, b: torch.Tensor, gelu: bool) -> torch.Tensor:
    rows, inner = a.shape
    columns = b.shape[1]
    c = torch.empty(rows, columns, device=a.device, dtype=a.dtype)
    gemm[lambda chosen: (triton.cdiv(rows, chosen["M"]) * triton.cdiv(columns, chosen["N"]),)](
        a, b, c, rows, columns, inner, GELU=gelu
    )
    return c


def device_us(arm: Arm, copies: int, calls: int) -> Callable[[], float]:
    """A function that replays `calls` captured calls and returns microseconds per call."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for n in range(copies):
            arm(n)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for n in range(calls):
            arm(n % copies)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / calls

    replay()
    return replay


def host_us(arm: Arm, copies: int, calls: int = 50) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for n in range(calls):
        arm(n % copies)
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - begin) / 1000 / calls


def measure(arms: dict[str, Arm], copies: int, work: dict[str, float], deadline: float) -> dict[str, Any]:
    """Both clocks for all arms; `work` has `bytes` and `flop` per call."""
    replays: dict[str, Callable[[], float]] = {}
    failed: dict[str, str] = {}
    for name, arm in arms.items():
        try:
            once = time.perf_counter()
            arm(0)
            torch.cuda.synchronize()
            for _ in range(3):
                arm(0)
            torch.cuda.synchronize()
            rough = max(host_us(arm, copies, 5), 2.0)
            replays[name] = device_us(arm, copies, max(20, min(200, int(40_000 / rough))))
            failed.pop(name, None)
            first = time.perf_counter() - once
            print(f"  {name}: ready after {first:.1f} s", file=sys.stderr)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
    samples: dict[str, dict[str, list[float]]] = {name: {"device": [], "host": []} for name in replays}
    draw = random.Random(0)
    for _ in range(ROUNDS):
        if time.monotonic() > deadline:
            break
        order = list(replays)
        draw.shuffle(order)
        for name in order:
            samples[name]["device"].append(replays[name]())
            samples[name]["host"].append(host_us(arms[name], copies))
    result: dict[str, Any] = {}
    for name, clocks in samples.items():
        if not clocks["device"]:
            continue
        device = statistics.median(clocks["device"])
        result[name] = {
            "device_us": device,
            "host_us": statistics.median(clocks["host"]),
            "gb_per_s": work["bytes"] / device / 1e3,
            "tflops": work.get("flop", 0.0) / device / 1e6,
            "samples": {clock: [round(value, 3) for value in values] for clock, values in clocks.items()},
        }
    result.update({name: {"error": text} for name, text in failed.items()})
    return result


def vector_add(n: int, deadline: float) -> dict[str, Any]:
    copies = max(1, min(64, int(3 * 50e6 / (12 * n)) + 1))
    sets = [tuple(torch.randn(n, device="cuda") for _ in range(3)) for _ in range(copies)]
    for x, y, out in sets[:1]:
        for version in ("masked", "autotuned"):
            vector_add_example.run(version, x, y, out)
            assert torch.equal(out, x + y), (version, n)
    arms: dict[str, Arm] = {
        "torch": lambda i: torch.add(sets[i][0], sets[i][1], out=sets[i][2]),
        "triton-masked": lambda i: vector_add_example.run("masked", *sets[i]),
        "triton-autotuned": lambda i: vector_add_example.run("autotuned", *sets[i]),
    }
    return measure(arms, copies, {"bytes": 12.0 * n}, deadline)


def edges() -> dict[str, bool]:
    """Sizes around a tile."""
    right: dict[str, bool] = {}
    for n in (1, 1023, 1024, 1025, 192_311):
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        out = torch.empty_like(x)
        vector_add_example.run("masked", x, y, out)
        right[str(n)] = bool(torch.equal(out, x + y))
    return right


def softmax(rows: int, columns: int, deadline: float) -> dict[str, Any]:
    copies = max(1, int(3 * 50e6 / (4 * rows * columns)) + 1)
    inputs = [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    compiled = torch.compile(softmax_example.naive)
    arms: dict[str, Arm] = {
        "torch": lambda i: torch.softmax(inputs[i], dim=1),
        "naive": lambda i: softmax_example.naive(inputs[i]),
        "compiled": lambda i: compiled(inputs[i]),
        "triton": lambda i: softmax_example.fused(inputs[i]),
    }
    return measure(arms, copies, {"bytes": 4.0 * rows * columns}, deadline)


def rms_norm(rows: int, columns: int, deadline: float) -> dict[str, Any]:
    copies = max(1, int(3 * 50e6 / (4 * rows * columns)) + 1)
    inputs = [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    weight = torch.randn(columns, device="cuda", dtype=torch.bfloat16)

    def spelled(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        tile = triton.next_power_of_2(columns)
        rms_norm_rows[(rows,)](x, weight, out, columns, 1e-6, TILE=tile, num_warps=min(16, max(4, tile // 512)))
        return out

    compiled = torch.compile(spelled)
    wrong = (by_hand(inputs[0]).float() - spelled(inputs[0]).float()).abs().max().item()
    arms: dict[str, Arm] = {
        "spelled": lambda i: spelled(inputs[i]),
        "torch": lambda i: F.rms_norm(inputs[i], (columns,), weight, 1e-6),
        "compiled": lambda i: compiled(inputs[i]),
        "triton": lambda i: by_hand(inputs[i]),
    }
    return {"largest difference": wrong, **measure(arms, copies, {"bytes": 4.0 * rows * columns}, deadline)}


def matmul(size: int, gelu: bool, deadline: float) -> dict[str, Any]:
    copies = max(1, int(3 * 50e6 / (6 * size * size)) + 1)
    pairs = [
        tuple(torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2)) for _ in range(copies)
    ]
    scale = size**-0.5
    pairs = [(a, b * scale) for a, b in pairs]

    def plain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = a @ b
        return F.gelu(y) if gelu else y

    compiled = torch.compile(plain)
    wrong = (triton_gemm(*pairs[0], gelu).float() - plain(*pairs[0]).float()).abs().max().item()
    arms: dict[str, Arm] = {
        "cublas": lambda i: plain(*pairs[i]),
        "triton": lambda i: triton_gemm(*pairs[i], gelu),
    }
    if gelu:
        arms["compiled"] = lambda i: compiled(*pairs[i])
        arms["gemm alone"] = lambda i: pairs[i][0] @ pairs[i][1]
    work = {"bytes": 6.0 * size * size, "flop": 2.0 * size**3}
    return {"largest difference": wrong, **measure(arms, copies, work, deadline)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=float, default=75.0)
    args = parser.parse_args()
    deadline = time.monotonic() + args.budget
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "E15 edges": edges,
        "E15 vector_add 192311": lambda: vector_add(192_311, deadline),
        "E15 vector_add 2**28": lambda: vector_add(1 << 28, deadline),
        "E17 gemm 4096": lambda: matmul(4096, False, deadline),
        "E17 gemm + gelu 4096": lambda: matmul(4096, True, deadline),
        "E16 softmax 4096x16384": lambda: softmax(4096, 16384, deadline),
        "E16 rms_norm 8192x4096": lambda: rms_norm(8192, 4096, deadline),
        "E17 gemm 1024": lambda: matmul(1024, False, deadline),
    }
    for name, part in parts.items():
        if time.monotonic() > deadline:
            results[name] = {"error": "not run: the time budget is spent"}
            continue
        try:
            results[name] = part()
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        torch.cuda.empty_cache()
        print(f"{name}: {max(0, deadline - time.monotonic()):.0f} s left", file=sys.stderr)
        Path(args.out).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
