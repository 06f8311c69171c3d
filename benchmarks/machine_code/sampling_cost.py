"""What `lanewise run --sample` costs a program whose steps take 20 ms and more: the same steps with and without, in turns.

    python -m benchmarks.machine_code.sampling_cost OUT.json

It needs torch and a card that may be sampled, and takes a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lanewise.capture.sampling.device_context import context_in_use
from lanewise.capture.sampling.sampled_program import EVERY_S, SampledProgram
from lanewise.cli.recording.sampled_run import PERIOD, sampler_of

WARM_S, WINDOW_S, PAIRS = 0.4, 1.6, 4

Step = Callable[[], None]


def large(rounds: int) -> Step:
    """Products and what moves data: the device is behind."""
    x = torch.rand(4096, 4096, device="cuda")

    def step() -> None:
        for _ in range(rounds):
            y = x @ x
            torch.softmax(y, 1).add_(x)
        torch.cuda.synchronize()

    return step


def small(rounds: int) -> Step:
    """Small kernels, one after the other: the host is behind."""
    x = torch.rand(64, 64, device="cuda")

    def step() -> None:
        for _ in range(rounds):
            x.mul_(0.5).add_(1.0)
        torch.cuda.synchronize()

    return step


STEPS: dict[str, tuple[Callable[[int], Step], float]] = {
    "large kernels, 20 ms": (large, 0.02),
    "large kernels, 100 ms": (large, 0.1),
    "small kernels, 20 ms": (small, 0.02),
}


def of_length(make: Callable[[int], Step], seconds: float) -> Step:
    """A step that takes about so long."""
    rounds = 40
    step = make(rounds)
    step()
    begin = time.perf_counter()
    step()
    return make(max(1, round(rounds * seconds / (time.perf_counter() - begin))))


def window(step: Step, seconds: float) -> float:
    """Seconds of a step, on average over a window."""
    begin, number = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + seconds:
        step()
        number += 1
    return (now - begin) / number


def sampled_window(step: Step) -> tuple[float, SampledProgram]:
    """The same while the program is sampled, after what switching it on takes."""
    program = SampledProgram(context_in_use, sampler_of)
    program.begin()
    window(step, WARM_S)
    found = window(step, WINDOW_S)
    program.finish()
    if program.problem:
        raise SystemExit(program.problem)
    return found, program


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    torch.zeros(1, device="cuda")
    result: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    result |= {"every_s": EVERY_S, "period": PERIOD, "window_s": WINDOW_S, "steps": []}
    for name, (make, seconds) in STEPS.items():
        step = of_length(make, seconds)
        sampled_window(step)  # what is done once for each card is done
        pairs: list[tuple[float, float]] = []
        samples = 0
        for _ in range(PAIRS):
            window(step, WARM_S)
            plain = window(step, WINDOW_S)
            sampled, program = sampled_window(step)
            pairs.append((plain, sampled))
            samples += program.taken.counts.total()
        ratios = sorted(sampled / plain for plain, sampled in pairs)
        found = {"step_s": statistics.median(plain for plain, _ in pairs), "ratio": statistics.median(ratios)}
        result["steps"].append({"name": name, **found, "ratios": ratios, "pairs": pairs, "samples": samples})
        print(
            f"{name} ({1e3 * found['step_s']:.1f}): {found['ratio']:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); "
            f"{samples:,} samples",
            flush=True,
        )
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
