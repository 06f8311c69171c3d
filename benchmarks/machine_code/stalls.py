"""What warps wait for in each planted kernel and its twin, by Nsight Compute: its counters are the ones to agree with.

    python -m benchmarks.machine_code.stalls OUT.json --planted PLANTED.cubin

It needs torch, a card whose counters may be read, and `ncu` on the PATH (or `--ncu`).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.machine_code.planted_cuda import DEFECTS

from lanewise.machine_code.stall_reasons import stall_called, top_stall

STALLS = "smsp__average_warps_issue_stalled_"
COUNTERS = (
    "gpu__time_duration.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
)
METRICS = ",".join((f"regex:{STALLS}.*_per_issue_active", *COUNTERS))


def rows_of(text: str) -> list[dict[str, str]]:
    """Rows of what `ncu --csv --page raw` prints; what is no table, and the row of units, is passed over."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))) if (row.get("ID") or "").strip()]


def kernel_of(row: dict[str, str]) -> dict[str, Any]:
    """What is kept of a kernel: its counters, and what its warps wait for most."""
    numbers: dict[str, float] = {}
    for name, text in row.items():
        try:
            numbers[name] = float((text or "").replace(",", ""))
        except ValueError:
            continue
    stalls = {stall_called(name.partition(" ")[0]): value for name, value in numbers.items() if name.startswith(STALLS)}
    named = {name.partition(" ")[0]: value for name, value in numbers.items()}
    counters = {name: named[name] for name in COUNTERS if name in named}
    return {"top": top_stall(stalls), "stalls": stalls, "counters": counters}


def main() -> None:
    """Profile, and write as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--planted", type=Path, required=True)
    parser.add_argument("--ncu", default="ncu")
    asked = parser.parse_args()
    names = "|".join(plant.name for plant in DEFECTS)
    command = [asked.ncu, "--csv", "--page", "raw", "--clock-control", "none", "--metrics", METRICS]
    command += ["--kernel-name", f"regex:^({names})(_mended)?$"]
    command += [sys.executable, "-m", "benchmarks.machine_code.measure", "-", "--planted", str(asked.planted), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    rows = rows_of(done.stdout)
    if not rows:
        said = (done.stdout + done.stderr).strip().splitlines()
        sys.exit("Nsight Compute profiled nothing: " + " | ".join(said[-4:]))
    kernels = {row["Kernel Name"].partition("(")[0]: kernel_of(row) for row in rows}
    asked.out.write_text(json.dumps(kernels, indent=1) + "\n")
    for name, kernel in kernels.items():
        print(f"{name:26} {kernel['top']}")


if __name__ == "__main__":
    main()
