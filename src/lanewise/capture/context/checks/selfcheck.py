"""Checks at the start: what is known to happen must be what the collector sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lanewise.capture.lazy_torch import torch_part

__all__ = ["check_device", "check_operators", "cost_of_callback"]


def check_operators(run: Callable[[Callable[[], Any]], dict[str, Any]], *, frames: bool) -> str:
    """Runs a known operator in a known function and looks for both. Returns "" or what is missing."""
    torch = torch_part()
    x = torch.zeros(2, 2)

    def known_function() -> None:
        with torch.no_grad():
            torch.mm(x, x)

    found = run(known_function)
    if "aten::mm" not in found["names"] or not any(one["callbacks"] for one in found["threads"]):
        return "a known operator did not appear"
    if frames and not any(code is known_function.__code__ for code, _ in found["sites"]):
        return "a known Python frame did not appear"
    return ""


def check_device(run: Callable[[Callable[[], Any]], dict[str, Any]]) -> str:
    """Runs a known kernel and looks for it, and for nothing lost. Returns "" or what is wrong. The device is in use."""
    torch = torch_part()
    x = torch.zeros(256, device="cuda")

    def known_kernel() -> None:
        with torch.no_grad():
            torch.add(x, 1)
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    found = run(known_kernel)
    counts = found["device"]
    if not counts["kernel_records"]:
        return "a known kernel did not appear"
    if counts["kernels"] != counts["kernel_records"]:
        return f"{counts['kernels']} known kernels were launched and {counts['kernel_records']} appeared"
    if counts["unmatched"]:
        return "a known kernel appeared without its operator"
    return ""


def cost_of_callback(on: Callable[[], None], off: Callable[[], None], *, calls: int = 200, rounds: int = 50) -> float:
    """What one small operator costs more with the collector on, ns: the smallest of many short rounds on either side."""
    torch = torch_part()
    x = torch.zeros(1)

    def measure() -> int:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            x.add_(x)
        return time.perf_counter_ns() - begin

    with torch.no_grad():
        measure()
        without: list[int] = []
        within: list[int] = []
        for _ in range(rounds):
            without.append(measure())
            on()
            try:
                within.append(measure())
            finally:
                off()
    return round(max(0.0, (min(within) - min(without)) / calls), 1)
