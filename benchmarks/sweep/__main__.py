"""`python -m benchmarks.sweep --out FILE [--device cuda] [PROGRAM ...]`: the crossover of each program, predicted from one
recording and measured by all, as JSON; a line for each on the way."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.fresh import call
from benchmarks.machine import described
from benchmarks.sweep.in_turns import WITHIN, in_turns
from benchmarks.sweep.programs import PROGRAMS

from lanewise.capture.script import Program
from lanewise.errors import LanewiseError
from lanewise.report.swept import Sweep
from lanewise.sweep.crossover import crossover_of_steps
from lanewise.sweep.over import Over
from lanewise.sweep.sweep import sweep_of

_LIMIT_S = 300.0
_LEAST = 0.001
"""A factor, as it is rounded."""


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
        help="time all sizes in turns, without the profiler, and record the first, all in one process: for machines where "
        "another process is as fast as it likes",
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
            out = Path(folder) / name
            program = Program(module="benchmarks.sweep.programs", arguments=(name, "--device", args.device))
            try:
                if args.in_turns:
                    row = call(partial(in_turns, name, args.device, sizes, out), seconds=_LIMIT_S)
                else:
                    row = _row([sweep_of(program, over, out) for _ in range(args.repeat)], sizes)
            except LanewiseError as error:
                row = {"error": str(error)}
            rows[name] = row | {"seconds": round(time.monotonic() - begun, 1)}
            print(f"{name:16} {_line(row)}", flush=True)
            _write(args.out, {"schema": 2, "machine": machine, "device": args.device, "sizes": sizes, "programs": rows})
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
    } | ({"predicted_factor": round(at[1] / at[0], 3)} if at[0] and at[1] else {})


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    at = [row[key] and (row[key]["at"] or row[key]["where"]) for key in ("measured", "predicted")]
    said = f"measured {at[0]}, predicted {at[1]}, factor {row.get('predicted_factor')}"
    if "between" in row:
        said += f"; measured between {row['between']}, {row.get('grown_factor')} from the first size as timed"
    return f"{said}; {row['timed_share']:.0%} of operators timed"


def _write(out: Path, result: dict[str, Any]) -> None:
    rows = result["programs"].values()
    result["summary"] = {"programs": len(rows)}
    for key in ("predicted", "as_fast", "grown"):
        factors = [max(row[f"{key}_factor"], _LEAST) for row in rows if f"{key}_factor" in row]
        off = [max(factor, 1 / factor) for factor in factors]
        if off:
            result["summary"][key] = {
                "known": len(off),
                f"within_{WITHIN}x": sum(one <= WITHIN for one in off),
                f"within_{WITHIN}x_of_between": sum(row.get(f"{key}_agrees", False) for row in rows),
                "median_off": round(statistics.median(off), 3),
            }
    out.write_text(json.dumps(_rounded(result), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    raise SystemExit(main())
