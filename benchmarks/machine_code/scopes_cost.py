"""What `lanewise run --scopes` costs a kernel: its time on the device with its scopes timed and without, in turns.

    python -m benchmarks.machine_code.scopes_cost OUT.json

It needs torch, Triton and a card, and takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
import triton.profiler as proton
import triton.profiler.language as scopes
from examples.scopes_in_a_kernel import scoped_sums

ROWS, COLUMNS, TILE = 4096, 16384, 1024
LAUNCHES, PAIRS = 20, 5


def launch(x: torch.Tensor, out: torch.Tensor, each: bool) -> None:
    """Once."""
    scoped_sums[(ROWS,)](x, out, COLUMNS, TILE=TILE, each=each)


def microseconds(x: torch.Tensor, out: torch.Tensor, each: bool) -> float:
    """Of the kernel alone, by the activity that the device reports: the median of some launches."""
    launch(x, out, each)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(LAUNCHES):
            launch(x, out, each)
        torch.cuda.synchronize()
    return statistics.median(one.device_time for one in profile.events() or () if one.name == "scoped_sums")


def timed(x: torch.Tensor, out: torch.Tensor, each: bool) -> float:
    """The same while Proton times the scopes."""
    with tempfile.TemporaryDirectory() as folder:
        session = proton.start(f"{folder}/scopes", data="tree", backend="instrumentation")
        try:
            return microseconds(x, out, each)
        finally:
            proton.finalize(session)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    path: Path = parser.parse_args().out
    scopes.enable_semantic("triton")
    x, out = torch.rand(ROWS, COLUMNS, device="cuda"), torch.empty(ROWS, device="cuda")
    result: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "kernels": [],
    }
    for name, each in (("two scopes", False), ("two scopes and one for each of 16 loads", True)):
        pairs = [(microseconds(x, out, each), timed(x, out, each)) for _ in range(PAIRS)]
        ratios = sorted(after / before for before, after in pairs)
        found = {"name": name, "ratio": statistics.median(ratios), "ratios": ratios, "pairs_us": pairs}
        result["kernels"].append(found)
        print(f"{name}: {found['ratio']:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), {pairs[0][0]:.1f} us", flush=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
