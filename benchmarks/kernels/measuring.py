"""Timing of kernels on a CUDA device, by the rules of the measurement protocol.

Device time: every arm is captured into a CUDA graph that calls it over several input sets, together at least three
times the L2 cache, so that inputs come from memory and no launch is in the time. Host-inclusive time: wall time of
back-to-back calls on one set, synchronised at the end. Arms take turns in random order, in rounds; medians, 20th and
80th percentile; the interval of a ratio comes from resampling whole rounds (drift that the arms share cancels).
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lanewise import nvml

__all__ = ["Arm", "Samples", "calibrate", "device_options", "device_times", "host_times", "machine", "ratio_interval"]

Arm = Callable[..., Any]


@dataclass(frozen=True)
class Samples:
    """Microseconds of one arm: one value per round, in the order of the rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.values))

    def summary(self) -> dict[str, Any]:
        low, high = np.percentile(self.values, [20, 80])
        return {
            "median_us": round(self.median, 3),
            "p20_us": round(float(low), 3),
            "p80_us": round(float(high), 3),
            "rounds_us": [round(value, 3) for value in self.values],
        }


def ratio_interval(slow: Samples, fast: Samples, resamples: int = 2000) -> tuple[float, float, float]:
    """median(slow) / median(fast) with its 95 % interval; rounds are resampled as pairs."""
    a, b = np.array(slow.values), np.array(fast.values)
    n = min(len(a), len(b))
    drawn = np.random.default_rng(0).integers(0, n, (resamples, n))
    ratios = np.median(a[:n][drawn], axis=1) / np.median(b[:n][drawn], axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(np.median(a) / np.median(b)), float(low), float(high)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _graph(arm: Arm, sets: Sequence[tuple[Any, ...]], calls: int, prepare: bool) -> torch.cuda.CUDAGraph:
    """A graph of `calls` calls over the sets; outputs live until the end of the graph, so each has its own memory."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        if prepare:
            for _ in range(3):
                arm(*sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept: list[Any] = []
    # Not `torch.cuda.graph(...)`: that collects garbage and empties the allocator's cache each time.
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            kept += [arm(*sets[call % len(sets)]) for call in range(calls)]
        finally:
            graph.capture_end()
    del kept
    return graph


def _span(graph: torch.cuda.CUDAGraph) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def device_times(
    arms: Mapping[str, Arm],
    make: Callable[[int], tuple[Any, ...]],
    *,
    rounds: int = 10,
    target_us: float = 2500.0,
    max_sets: int = 64,
    max_bytes: int = 12 << 30,
    seed: int = 0,
) -> dict[str, Samples]:
    """Microseconds per call of each arm, launch-free and with cold inputs. `make(i)` makes the i-th input set."""
    sets = [make(0)]
    size = sum(t.numel() * t.element_size() for t in _tensors(sets[0]))
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    wanted = min(max(-(-3 * l2 // max(size, 1)), 2), max_sets)
    sets += [make(i) for i in range(1, wanted)]
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    calls: dict[str, int] = {}
    for name, arm in arms.items():
        out = sum(t.numel() * t.element_size() for t in _tensors(arm(*sets[0])))
        trial = _graph(arm, sets, len(sets), True)
        _span(trial)
        one = _span(trial) / len(sets)
        del trial
        most = max(int(max_bytes // max(out, 1)), len(sets))
        repeats = max(1, round(min(target_us / max(one, 0.5), 400, most) / len(sets)))
        calls[name] = repeats * len(sets)
        graphs[name] = _graph(arm, sets, calls[name], False)
    order = list(arms)
    pick = random.Random(seed)
    for name in order:
        _span(graphs[name])
        _span(graphs[name])
    values: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        pick.shuffle(order)
        for name in order:
            values[name].append(_span(graphs[name]) / calls[name])
    graphs.clear()
    del sets
    gc.collect()
    torch.cuda.empty_cache()
    return {name: Samples(tuple(values[name])) for name in arms}


def host_times(
    arms: Mapping[str, Arm], inputs: tuple[Any, ...], *, rounds: int = 15, calls: int = 100, seed: int = 0
) -> dict[str, Samples]:
    """Microseconds of wall time per call, Python and launch included: back-to-back calls, synchronised at the end."""
    for arm in arms.values():
        for _ in range(20):
            arm(*inputs)
    torch.cuda.synchronize()
    order = list(arms)
    pick = random.Random(seed)
    values: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        pick.shuffle(order)
        for name in order:
            arm = arms[name]
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                arm(*inputs)
            torch.cuda.synchronize()
            values[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: Samples(tuple(values[name])) for name in arms}


def calibrate(gib: float = 1.0) -> dict[str, float]:
    """What this card reaches: copy bandwidth (GB/s, bytes read plus written) and a bf16 product (TFLOP/s).

    The copy is the faster of a memory copy (which a graph gives to the copy path, slower on our card) and a kernel that
    reads and writes each element once.
    """
    n = int(gib * (1 << 30) // 2)
    source = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    ways = device_times(
        {"copy": lambda a, b: b.copy_(a), "kernel": lambda a, b: torch.neg(a, out=b)},
        lambda i: (source, target),
        max_sets=1,
        rounds=5,
    )
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = device_times({"mm": torch.mm}, lambda i: (a, a), max_sets=1, rounds=5)["mm"]
    return {
        "copy_gb_per_s": round(4 * n / min(way.median for way in ways.values()) / 1e3, 1),
        "memcpy_gb_per_s": round(4 * n / ways["copy"].median / 1e3, 1),
        "bf16_tflop_per_s": round(2 * 8192**3 / product.median / 1e6, 1),
    }


def device_options(description: str | None) -> argparse.Namespace:
    """Command line of a benchmark that takes device times: `out`, `rounds` and `seconds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60, help="start nothing after this many seconds")
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """Card, driver and versions that a result holds for; no host or user names."""
    import platform

    import triton

    properties = torch.cuda.get_device_properties(0)
    record: dict[str, Any] = {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_gib": round(properties.total_memory / (1 << 30), 1),
        "l2_mb": round(properties.L2_cache_size / 1e6, 1),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }
    reading = nvml.read(str(properties.uuid))
    if reading is None:
        return record | {"nvml": "not available"}  # said instead of staying silent
    return record | {
        "driver": nvml.driver_version(),
        "power_limit_w": reading.power_limit_w,
        "sm_clock_mhz": reading.sm_mhz,
        "memory_clock_mhz": reading.memory_mhz,
    }
