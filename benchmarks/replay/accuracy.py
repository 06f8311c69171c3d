"""How well replay does on recordings whose truth is known: residual, step without the profiler, distortion, fixes, speed.

    python -m benchmarks.replay.accuracy TRACES TRUTH.json --out RESULT.json

TRACES is the folder that `benchmarks.replay.record` filled, TRUTH.json what it wrote there. Nothing is recorded here: the
same recordings and code give the same numbers on every machine, but for the speed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from lanewise import __version__
from lanewise.diagnose.explain import report_of
from lanewise.measure.facts import Facts
from lanewise.replay.simulate import simulate
from lanewise.report.gain import helps
from lanewise.trace.reader import read

DISTORTED = 1.2


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    truth = json.loads(asked.truth.read_text())
    steps, fixes = [], []
    for pair in truth["pairs"]:
        for recording in pair["recordings"]:
            path = asked.traces / recording["file"]
            if path.exists():
                _judge(pair, recording, path, steps, fixes)
    result = {
        "what": "replay against recordings timed without a profiler beforehand; none of them was part of the fit",
        "lanewise": __version__,
        "machine": truth.get("machine", {}),
        "summary": _summary(steps, fixes),
        "steps": steps,
        "fixes": fixes,
    }
    print(json.dumps(result["summary"], indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _judge(
    pair: dict[str, Any],
    recording: dict[str, Any],
    path: Path,
    steps: list[dict[str, Any]],
    fixes: list[dict[str, Any]],
) -> None:
    trace = read(path, cache=False)
    facts = Facts(trace)
    graph = facts.graph
    began = time.perf_counter()
    for _ in range(20):
        simulate(graph, rounds=1)
    seconds = time.perf_counter() - began
    measured = float(recording["unprofiled"]["median_us"])
    step = facts.unprofiled
    steps.append(
        {
            "recording": recording["name"],
            "events": len(trace),
            "residual": float(simulate(graph, rounds=1).end.max() / graph.recorded_ns - 1),
            "measured_us": measured,
            "computed_us": round(step.step_ns / 1e3, 3),
            "low_us": round(step.low_ns / 1e3, 3),
            "high_us": round(step.high_ns / 1e3, 3),
            "recorded_us": round(step.recorded_ns / 1e3, 3),
            "twenty_simulations_s": round(seconds, 5),
        }
    )
    if recording["role"] != "slow" or not pair["codes"]:
        return
    report = report_of(facts)
    found = [f for f in report.findings if f.code in pair["codes"] and f.alone_us_per_step > 0]
    first = next((f.code for f in report.findings if helps(f)), "")
    fixed = float(pair["fixed_us"])
    left = report.regime.step_us - found[0].alone_us_per_step if found else None
    fixes.append(
        {
            "recording": recording["name"],
            "codes": pair["codes"],
            "first": first,
            "found": found[0].code if found else "",
            "slow_us": measured,
            "fixed_us": fixed,
            "said_left_us": None if left is None else round(left, 3),
        }
    )


def _summary(steps: list[dict[str, Any]], fixes: list[dict[str, Any]]) -> dict[str, Any]:
    ratio = np.array([s["computed_us"] / s["measured_us"] for s in steps])
    error = np.abs(ratio - 1)
    stretched = np.array([s["recorded_us"] / s["measured_us"] for s in steps]) > DISTORTED
    noticed = np.array([s["recorded_us"] / s["computed_us"] for s in steps]) > DISTORTED
    held = [s["low_us"] <= s["measured_us"] <= s["high_us"] for s in steps]
    left = np.array([abs(f["said_left_us"] / f["fixed_us"] - 1) for f in fixes if f["said_left_us"] is not None])
    return {
        "residual": {
            "recordings": len(steps),
            "median": float(np.median([abs(s["residual"]) for s in steps])),
            "worst": float(max(abs(s["residual"]) for s in steps)),
        },
        "step_without_profiler": {
            "median_error": round(float(np.median(error)), 4),
            "within_20_percent": round(float(np.mean(error < 0.2)), 4),
            "interval_holds": round(float(np.mean(held)), 4),
        },
        "distortion_above_1.2": {
            "distorted": int(stretched.sum()),
            "noticed": int((stretched & noticed).sum()),
            "not_distorted": int((~stretched).sum()),
            "false_alarms": int((~stretched & noticed).sum()),
        },
        "fixes": {
            "recordings": len(fixes),
            "found": len(left),
            "median_error_of_the_step_left": round(float(np.median(left)), 4),
            "within_15_percent": round(float(np.mean(left < 0.15)), 4),
            "named_first": round(float(np.mean([f["first"] in f["codes"] for f in fixes])), 4),
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
