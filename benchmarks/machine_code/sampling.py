"""Samples of what warps wait for, per instruction, by the library that comes with torch: whether this machine allows it,
what it costs, and whether its top reason is that of Nsight Compute.

    python -m benchmarks.machine_code.sampling OUT.json --planted PLANTED.cubin
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine_code.driver import Module
from benchmarks.machine_code.measure import launches
from tests.machine_code.planted_cuda import DEFECTS

from lanewise.capture.sampling.device_context import context_in_use, loaded_cupti
from lanewise.capture.sampling.pc_sampler import PcSampler, SamplingError
from lanewise.machine_code.stall_reasons import NOT_ISSUED

_PERIOD = 12


def sampler_of() -> PcSampler:
    """One that samples from now on."""
    return PcSampler(loaded_cupti(), context_in_use(), _PERIOD)


def _cost(launch: Any) -> dict[str, float]:
    """Seconds of a launch without and with sampling."""

    def timed() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            launch()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / 20

    plain = min(timed() for _ in range(3))
    sampler = sampler_of()
    sampled = min(timed() for _ in range(3))
    sampler.close()
    return {"plain_seconds": plain, "sampled_seconds": sampled}


def main() -> None:
    """Sample each planted kernel and its twin, and write as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--planted", type=Path, required=True)
    asked = parser.parse_args()
    result: dict[str, Any] = {"kernels": {}}
    torch.zeros(1, device="cuda")
    try:
        sampler_of().close()
    except (SamplingError, OSError) as error:
        asked.out.write_text(json.dumps({"forbidden": str(error)}) + "\n")
        print(f"This machine does not let instructions be sampled: {error}")
        return
    planted = Module(asked.planted)
    for plant in DEFECTS:
        slow, mended, *_ = launches(planted, plant)
        for name, launch in ((plant.name, slow), (f"{plant.name}_mended", mended)):
            launch()
            torch.cuda.synchronize()
            sampler = sampler_of()
            for _ in range(5):
                launch()
            torch.cuda.synchronize()
            taken = sampler.fetch()
            taken.add(sampler.close())
            samples = Counter[tuple[int, str]]()
            for (_, function, offset, reason), number in taken.counts.items():
                if function == name:
                    samples[offset, reason] += number
            reasons = Counter[str]()
            for (_, reason), number in samples.items():
                reasons[reason] += number
            rows = [[offset, reason, number] for (offset, reason), number in samples.most_common(40)]
            whole = sum(number for (*_, reason), number in taken.counts.items() if not reason.endswith(NOT_ISSUED))
            said = {"samples": whole, "dropped": taken.dropped}
            result["kernels"][name] = {"reasons": dict(reasons.most_common()), "instructions": rows, **said}
            print(f"{name:26} {said} {reasons.most_common(3)}", flush=True)
        if plant.name in ("row_sums", "plain_product"):
            result["kernels"][plant.name]["cost"] = _cost(slow)
    asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
