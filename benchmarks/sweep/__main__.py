"""`python -m benchmarks.sweep --out FILE [--device cuda] [PROGRAM ...]`: the crossover of each program, predicted from one
recording and measured by all, as JSON; a line for each on the way."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.fresh import call
from benchmarks.machine import described
from benchmarks.sweep.programs import PROGRAMS, steps_in_turns

from lanewise.capture.script import Program
from lanewise.diagnose.explain import facts_of
from lanewise.errors import LanewiseError
from lanewise.report.swept import Sweep
from lanewise.sweep.crossover import crossover_of_steps
from lanewise.sweep.over import Over
from lanewise.sweep.predicted import predicted_sizes
from lanewise.sweep.recorded import record
from lanewise.sweep.sweep import sweep_of
from lanewise.trace.reader import read

WITHIN = 1.25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeat", type=int, default=1, help="sweeps of each, of which the quickest recordings count")
    parser.add_argument("--first", type=int, default=1, help="the batch size that is predicted from")
    parser.add_argument(
        "--in-turns",
        action="store_true",
        help="record the first size only, and time all by the thread's CPU time, in turns, in one process: for a CPU that "
        "others use, too",
    )
    parser.add_argument("--last", type=int, default=0, help="the largest, 1024 on a CPU and 65536 on a card by default")
    args = parser.parse_args()
    last = args.last or (1024 if args.device == "cpu" else 65_536)
    factor = 2 if args.device == "cpu" else 4
    sizes = [args.first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    over = Over("batch", tuple(str(size) for size in sizes), environment=False)
    rows: dict[str, Any] = {}
    machine = call(described, seconds=60)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.programs or PROGRAMS:
            begun = time.monotonic()
            program = Program(module="benchmarks.sweep.programs", arguments=(name, "--device", args.device))
            try:
                if args.in_turns:
                    row = _in_turns(program, over, Path(folder) / name, sizes)
                else:
                    row = _row([sweep_of(program, over, Path(folder) / name) for _ in range(args.repeat)], sizes)
            except LanewiseError as error:
                row = {"failed": str(error)}
            rows[name] = row | {"seconds": round(time.monotonic() - begun, 1)}
            print(f"{name:16} {_line(row)}", flush=True)
            _write(args.out, {"schema": 1, "machine": machine, "device": args.device, "sizes": sizes, "programs": rows})
    return 0


def _row(sweeps: list[Sweep], sizes: list[int]) -> dict[str, Any]:
    """What was found, and predicted from the quickest of the first recordings; whoever shares the machine only slows."""
    chosen = min(sweeps, key=lambda sweep: sweep.points[0].step_us or math.inf)
    measured, predicted = chosen.measured, chosen.predicted
    if chosen.device == "cpu" and len(sweeps) > 1:
        steps = [min(sweep.points[at].step_us or math.inf for sweep in sweeps) for at in range(len(sizes))]
        known = [(size, step) for size, step in zip(sizes, steps, strict=True) if step < math.inf]
        measured = crossover_of_steps([size for size, _ in known], [step for _, step in known])
    at = [None if one is None else one.at for one in (measured, predicted)]
    return {
        "measured": msgspec.to_builtins(measured),
        "predicted": msgspec.to_builtins(predicted),
        "factor": round(at[1] / at[0], 3) if at[0] and at[1] else None,
        "timed_share": chosen.timed_share,
        "points": [
            {
                key: value
                for key, value in msgspec.to_builtins(point).items()
                if key != "trace" and value not in ("", None)
            }
            for point in chosen.points
        ],
        "steps_us": [[point.step_us for point in sweep.points] for sweep in sweeps],
    }


def _in_turns(program: Program, over: Over, out: Path, sizes: list[int]) -> dict[str, Any]:
    """Predicted from a recording of the first size, and timed for all: each size for a few steps, again and again."""
    ended = record(program, over, over.values[0], out, [])
    if ended.trace is None:
        raise LanewiseError(f"nothing was recorded: {ended.why}")
    found = predicted_sizes(facts_of(read(ended.trace)), sizes)
    if found is None:
        raise LanewiseError("no operator could be timed by itself")
    predictions, share = found
    predicted = [one.step_us for one in predictions]
    steps = call(lambda: {"us": steps_in_turns(program.arguments[0], sizes)}, seconds=300)["us"]
    # The growth by itself: from the first size as timed and not as recorded, which others on the machine make longer.
    grown = [steps[0] + one - predicted[0] for one in predicted]
    pair = [crossover_of_steps(sizes, times) for times in (steps, predicted, grown)]
    at = [None if one is None else one.at for one in pair]
    return {
        "measured": msgspec.to_builtins(pair[0]),
        "predicted": msgspec.to_builtins(pair[1]),
        "factor": round(at[1] / at[0], 3) if at[0] and at[1] else None,
        "grown": msgspec.to_builtins(pair[2]),
        "grown_factor": round(at[2] / at[0], 3) if at[0] and at[2] else None,
        "timed_share": round(share, 4),
        "steps_us": [round(one, 2) for one in steps],
        "predicted_us": [round(one, 2) for one in predicted],
    }


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return row["failed"]
    at = [row[key] and (row[key]["at"] or row[key]["where"]) for key in ("measured", "predicted")]
    grown = f" ({row['grown_factor']} from the first size as timed)" if "grown_factor" in row else ""
    timed = f"{row['timed_share']:.0%} of operators timed"
    return f"measured {at[0]}, predicted {at[1]}, factor {row['factor']}{grown}, {timed}"


def _write(out: Path, result: dict[str, Any]) -> None:
    result["summary"] = {"programs": len(result["programs"])}
    for key in ("factor", "grown_factor"):
        factors = [row[key] for row in result["programs"].values() if row.get(key)]
        off = [max(factor, 1 / factor) for factor in factors]
        if off:
            result["summary"][key] = {
                "known": len(factors),
                f"within_{WITHIN}x": sum(one <= WITHIN for one in off),
                "median_off": round(statistics.median(off), 3),
            }
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
