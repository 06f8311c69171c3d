"""What mending each planted kernel would gain, from its code alone, beside what it gained on a card; and the same for each
step of `examples/gemm_ladder.cu`, whose cubin is needed for it. It needs no card: it reads what `measure` has written.

    python -m benchmarks.machine_code.predicted benchmarks/results/h200/machine-code --ladder gemm_ladder.cubin
"""

from __future__ import annotations

import argparse
import json
from math import prod
from pathlib import Path
from typing import Any

from tests.machine_code.planted_cuda import DEFECTS
from tests.machine_code.test_planted_cuda import verdict

from lanewise.machine_code.cubins import kernels_in
from lanewise.machine_code.limiter import limits_of
from lanewise.machine_code.mended import gain_of
from lanewise.machine_code.throughput import CLOCK, clocks_of, work_of
from lanewise.measure.kernel.datasheet import Peak, peak_called

FITTED = ("transpose", "too_few_registers")
"""Pairs that a constant of the model is fitted to."""
SIDE = 4096
# Of each step: columns and rows of the product that a block makes (0: as many blocks as fit), and how many of its inner
# length a pass through the hottest loop takes.
STEPS = {
    "step1_naive": (16, 16, 16),
    "step2_coalesced": (32, 8, 16),
    "step3_shared": (32, 32, 32),
    "step4_registers": (64, 64, 16),
    "step5_vectorised": (64, 64, 16),
    "step6_tensor_cores": (128, 128, 16),
    "step7_async": (128, 128, 16),
}


def pairs(measured: dict[str, Any], card: Peak) -> dict[str, Any]:
    """Gains of the planted kernels, 0 where nothing is predicted, and on how many the two are within a fifth."""
    found: dict[str, Any] = {}
    for plant in DEFECTS:
        gain = gain_of(verdict(plant), prod(plant.grid), card)
        of = measured[plant.name]["gain"]
        times = 0.0 if gain is None else gain.times
        found[plant.name] = {
            "predicted": round(times, 3),
            "measured": round(of, 3),
            "within": abs(times / of - 1) <= 0.2,
        }
    within = {name for name, one in found.items() if one["within"]}
    return {"within": len(within), "within_not_fitted": len(within - set(FITTED)), "of": len(found), "kernels": found}


def ladder(cubin: Path, measured: dict[str, Any], card: Peak) -> dict[str, Any]:
    """Of each step what limits it, its time as predicted and measured, and what mending it is predicted to gain."""
    by_name = {one.code.name: one for one in kernels_in(cubin)}
    found: dict[str, Any] = {}
    for name, (columns, rows, inner) in STEPS.items():
        grid = SIDE // columns * (SIDE // rows)
        found_of = limits_of(by_name[name], grid=grid, card=card)
        warps = by_name[name].threads // 32
        clocks = clocks_of(work_of(found_of.features), found_of.resident * warps, card.sms, card)
        gain = gain_of(found_of, grid, card)
        found[name] = {
            "limit": found_of.limits[0].name,
            "predicted_seconds": grid * warps / card.sms * clocks * SIDE / inner / CLOCK,
            "measured_seconds": measured[name]["seconds"],
            "mended": 0.0 if gain is None else round(gain.times, 3),
        }
    return found


def main() -> None:
    """Predict, write as JSON beside what was read, and print as tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ladder", type=Path, help="the cubin of examples/gemm_ladder.cu")
    asked = parser.parse_args()
    measured = json.loads((asked.folder / "measured.json").read_text())
    card = peak_called("H200")
    assert card is not None
    result = {"pairs": pairs(measured["pairs"], card)}
    print("| kernel | predicted | measured |\n|---|---|---|")
    for name, one in result["pairs"]["kernels"].items():
        predicted = f"{one['predicted']:.2f}" if one["predicted"] else "nothing said"
        print(f"| `{name}` | {predicted if one['within'] else f'*{predicted}*'} | {one['measured']:.2f} |")
    print(f"Within a fifth on {result['pairs']['within']} of {result['pairs']['of']}.")
    if asked.ladder is not None:
        result["ladder"] = ladder(asked.ladder, measured["ladder"], card)
        print(
            "| step | limited by | predicted, ms | measured, ms | mending it is said to gain |\n|---|---|---|---|---|"
        )
        for name, one in result["ladder"].items():
            times = [f"{1e3 * one[which]:.2f}" for which in ("predicted_seconds", "measured_seconds")]
            print(f"| `{name}` | {one['limit']} | {times[0]} | {times[1]} | {one['mended'] or ''} |")
    (asked.folder / "predicted.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
