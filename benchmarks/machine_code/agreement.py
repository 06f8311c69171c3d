"""Holds three answers against each other for each planted kernel and its twin: of its code, its samples and Nsight Compute.
It needs no card: it reads what `stalls` and `sampling` have written.

    python -m benchmarks.machine_code.agreement benchmarks/results/h200/machine-code
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.machine_code.planted_cuda import DEFECTS
from tests.machine_code.test_planted_cuda import TWINS, verdict

from lanewise.machine_code.stall_reasons import NOT_ISSUED, expected_stalls, stall_called, top_stall


def agreement(stalls: dict[str, Any], sampled: dict[str, Any]) -> dict[str, Any]:
    """Of each kernel the first limit, the two top reasons, and whether they agree; and on how many they do."""
    kernels: dict[str, dict[str, Any]] = {}
    for plant in (*DEFECTS, *TWINS):
        if plant.name not in stalls or plant.name not in sampled:
            continue
        reasons = Counter[str]()
        for name, number in sampled[plant.name]["reasons"].items():
            if not name.endswith(NOT_ISSUED):
                reasons[stall_called(name)] += number
        limits = verdict(plant).limits
        ncu, samples = stalls[plant.name]["top"], top_stall(reasons)
        kernels[plant.name] = {
            "limit": limits[0].name,
            "ncu": ncu,
            "samples": samples,
            "samples_agree": samples == ncu,
            "limit_agrees": ncu in expected_stalls(limits),
        }
    counts = {which: sum(one[which] for one in kernels.values()) for which in ("samples_agree", "limit_agrees")}
    return {"of": len(kernels), **counts, "kernels": kernels}


def main() -> None:
    """Compare, write as JSON beside what was read, and print as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    stalls, sampled = (json.loads((folder / f"{name}.json").read_text()) for name in ("stalls", "sampled"))
    found = agreement(stalls, sampled["kernels"])
    (folder / "agreement.json").write_text(json.dumps(found, indent=1) + "\n")
    print("| kernel | its code says | Nsight Compute | samples |\n|---|---|---|---|")
    for name, one in found["kernels"].items():
        limit = one["limit"] if one["limit_agrees"] else f"*{one['limit']}*"
        samples = one["samples"] if one["samples_agree"] else f"*{one['samples']}*"
        print(f"| `{name}` | {limit} | {one['ncu']} | {samples} |")
    print(f"Samples agree on {found['samples_agree']} of {found['of']}, the code on {found['limit_agrees']}.")


if __name__ == "__main__":
    main()
