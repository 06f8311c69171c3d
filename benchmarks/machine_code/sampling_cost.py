"""What `lanewise run --sample` costs a program whose steps take 20 ms and more: the same steps with and without, in turns.

    python -m benchmarks.machine_code.sampling_cost OUT.json

It needs torch and a card that may be sampled, and takes a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from lanewise.capture.sampling.bursts import EVERY_S, ON_S, Bursts
from lanewise.capture.sampling.device_context import context_in_use, loaded_cupti
from lanewise.capture.sampling.pc_sampler import Burst, PcSampler
from lanewise.cli.recording.sampled_run import PERIOD

STEPS_S = (0.02, 0.1)
WINDOW_S, PAIRS = 2.5, 5


class _Kept:
    """One sampler for all windows: it is closed at the end only."""

    def __init__(self) -> None:
        self.sampler = PcSampler(loaded_cupti(), context_in_use(), PERIOD)

    def start(self) -> None:
        self.sampler.start()

    def stop(self) -> Burst:
        return self.sampler.stop()

    def close(self) -> None:
        pass


def step_of(seconds: float) -> tuple[Any, Any]:
    """A step that takes about so long, of products and of what moves data; and its input."""
    x = torch.rand(4096, 4096, device="cuda")

    def step(rounds: int) -> None:
        for _ in range(rounds):
            y = x @ x
            torch.softmax(y, 1).add_(x)
        torch.cuda.synchronize()

    step(3)
    begin = time.perf_counter()
    step(20)
    rounds = max(1, round(seconds / ((time.perf_counter() - begin) / 20)))
    return step, rounds


def window(step: Any, rounds: int) -> float:
    """Seconds of a step, on average over a window: bursts are in it as often as there are any."""
    begin, number = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + WINDOW_S:
        step(rounds)
        number += 1
    return (now - begin) / number


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    torch.zeros(1, device="cuda")
    kept = _Kept()
    result: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    result |= {"on_s": ON_S, "every_s": EVERY_S, "period": PERIOD, "steps": []}
    for seconds in STEPS_S:
        step, rounds = step_of(seconds)
        pairs: list[tuple[float, float]] = []
        samples = bursts = 0
        for _ in range(PAIRS):
            plain = window(step, rounds)
            sampling = Bursts(lambda: kept if context_in_use() else None)
            sampling.begin()
            sampled = window(step, rounds)
            sampling.finish()
            if sampling.problem:
                raise SystemExit(sampling.problem)
            pairs.append((plain, sampled))
            samples, bursts = samples + sampling.found.counts.total(), bursts + sampling.number
        ratios = sorted(sampled / plain for plain, sampled in pairs)
        found = {"step_s": statistics.median(plain for plain, _ in pairs), "ratio": statistics.median(ratios)}
        result["steps"].append({**found, "ratios": ratios, "pairs": pairs, "bursts": bursts, "samples": samples})
        print(
            f"steps of {1e3 * found['step_s']:.1f} ms: {found['ratio']:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); "
            f"{bursts} bursts, {samples:,} samples",
            flush=True,
        )
    kept.sampler.close()
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
