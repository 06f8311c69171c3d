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
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.measure.facts import Facts
from lanewise.replay.simulate import simulate
from lanewise.report.gain import helps
from lanewise.trace.reader import read

DISTORTED = 1.2

NEARLY_ALL = 0.1
"""Where a fix leaves less of the step than this, a few per cent of the old step are several times what is left."""

WORTH = 0.05
"""A fix that gives less than this share of the step has no gain that could be compared."""

SAME_SPEED = 0.1
"""The host of a virtual machine has faster and slower minutes: this far apart they count as the same."""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    truth = json.loads(asked.truth.read_text())
    steps: list[dict[str, Any]] = []
    fixes: list[dict[str, Any]] = []
    timed: list[dict[str, Any]] = []
    for pair in truth["pairs"]:
        for recording in pair["recordings"]:
            path = asked.traces / recording["file"]
            if path.exists():
                _judge(pair, recording, path, steps, fixes, timed)
    result = {
        "what": "replay against recordings timed without a profiler beforehand; none of them was part of the fit",
        "lanewise": __version__,
        "machine": truth.get("machine", {}),
        "summary": _summary(steps, fixes, timed),
        "steps": steps,
        "fixes": fixes,
        "fixes_with_the_step_timed": timed,
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
    timed: list[dict[str, Any]],
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
    speed = _host_time_ratio(recording)
    steps.append(
        {
            "recording": recording["name"],
            "events": len(trace),
            "host_time_ratio": speed,
            "residual": float(simulate(graph, rounds=1).end.max() / graph.recorded_ns - 1),
            "measured_us": measured,
            "computed_us": round(step.step_ns / 1e3, 3),
            "low_us": round(step.low_ns / 1e3, 3),
            "high_us": round(step.high_ns / 1e3, 3),
            "recorded_us": round(step.recorded_ns / 1e3, 3),
            "twenty_simulations_s": round(seconds, 5),
        }
    )
    if recording["role"] == "slow" and pair["codes"]:
        fixes.append(_fix(pair, recording, facts, speed))
        timed.append(_fix(pair, recording, facts_of(trace, unprofiled_us=measured), speed))


def _fix(pair: dict[str, Any], recording: dict[str, Any], facts: Facts, speed: float | None) -> dict[str, Any]:
    """What the report says of a fix, beside what it measured."""
    report = report_of(facts)
    found = next((f for f in report.findings if f.code in pair["codes"] and f.alone_us_per_step > 0), None)
    first = next((f.code for f in report.findings if helps(f)), "")
    now = report.regime.step_us
    # A finding that is not made says that nothing is to be gained.
    left = now - (found.alone_us_per_step if found else 0.0)
    on_top = found is not None and found.code == first
    return {
        "recording": recording["name"],
        "host_time_ratio": speed,
        "codes": pair["codes"],
        "first": first,
        "found": found.code if found else "",
        "slow_us": float(recording["unprofiled"]["median_us"]),
        "fixed_us": float(pair["fixed_us"]),
        "fixed_over_slow": float(pair["fixed_over_slow"]["median"]),
        "said_now_us": round(now, 3),
        "said_left_us": round(left, 3),
        # The interval is that of the gain best first: what is first in the report has it alone.
        "low_us": round(now - found.high_us_per_step, 3) if found and on_top else None,
        "high_us": round(now - found.low_us_per_step, 3) if found and on_top else None,
    }


def _host_time_ratio(recording: dict[str, Any]) -> float | None:
    """How long the host took for the same small piece of work when this was recorded, over when the step was timed without
    a profiler; None where the recorder did not measure it."""
    while_timed = recording["unprofiled"].get("gauge_us")
    if not while_timed or "gauge_us" not in recording:
        return None
    return round(float(recording["gauge_us"] / np.median(while_timed)), 3)


def _summary(steps: list[dict[str, Any]], fixes: list[dict[str, Any]], timed: list[dict[str, Any]]) -> dict[str, Any]:
    ratio = np.array([s["recorded_us"] / s["measured_us"] for s in steps])
    stretched = ratio > DISTORTED
    noticed = np.array([s["recorded_us"] / s["computed_us"] for s in steps]) > DISTORTED
    alike = [s for s in steps if s["host_time_ratio"] is not None and abs(s["host_time_ratio"] - 1) <= SAME_SPEED]
    speeds = [s["host_time_ratio"] for s in steps if s["host_time_ratio"] is not None]
    return {
        "residual": {
            "recordings": len(steps),
            "median": float(np.median([abs(s["residual"]) for s in steps])),
            "worst": float(max(abs(s["residual"]) for s in steps)),
        },
        "host_time_ratio": {"p10": _quantile(speeds, 0.1), "p90": _quantile(speeds, 0.9)} if speeds else None,
        "step_without_profiler": _steps(steps),
        "step_without_profiler_host_at_the_same_speed": _steps(alike) if alike else None,
        "distortion_above_1.2": {
            "distorted": int(stretched.sum()),
            "noticed": int((stretched & noticed).sum()),
            "not_distorted": int((~stretched).sum()),
            "false_alarms": int((~stretched & noticed).sum()),
        },
        "fixes": _fixes(fixes),
        "fixes_with_the_step_timed": _fixes(timed),
        "misses": {
            "steps": [s["recording"] for s in steps if abs(s["computed_us"] / s["measured_us"] - 1) > 0.2],
            "fixes": [f["recording"] for f in fixes if abs(_error_in_turns(f)) > 0.15],
            "fixes_with_the_step_timed": _kinds(timed),
        },
    }


def _kinds(fixes: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The misses by kind: recording and error."""
    kinds: dict[str, dict[str, float]] = {}
    for fix in fixes:
        error = _error_in_turns(fix)
        if abs(error) > 0.15:
            kinds.setdefault(_kind(fix, error), {})[fix["recording"]] = round(error, 3)
    return kinds


def _kind(fix: dict[str, Any], error: float) -> str:
    if not fix["found"]:
        return "no finding gives anything"
    if fix["fixed_over_slow"] < NEARLY_ALL:
        return "nearly all of the step goes"
    return "too little is said to go" if error > 0 else "too much is said to go"


def _steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    error = np.array([abs(s["computed_us"] / s["measured_us"] - 1) for s in steps])
    held = [s["low_us"] <= s["measured_us"] <= s["high_us"] for s in steps]
    return {
        "recordings": len(steps),
        "median_error": round(float(np.median(error)), 4),
        "within_20_percent": round(float(np.mean(error < 0.2)), 4),
        "interval_holds": round(float(np.mean(held)), 4),
    }


def _fixes(fixes: list[dict[str, Any]]) -> dict[str, Any]:
    left = np.array([abs(f["said_left_us"] / f["fixed_us"] - 1) for f in fixes])
    in_turns = np.array([abs(_error_in_turns(f)) for f in fixes])
    held = [f["low_us"] <= f["fixed_us"] <= f["high_us"] for f in fixes if f["low_us"] is not None]
    gains = [abs(_gain_error(f)) for f in fixes if 1 - f["fixed_over_slow"] > WORTH]
    return {
        "recordings": len(fixes),
        "found": sum(bool(f["found"]) for f in fixes),
        "named_first": round(float(np.mean([f["first"] in f["codes"] for f in fixes])), 4),
        "step_left_median_error": round(float(np.median(left)), 4),
        "step_left_within_15_percent": round(float(np.mean(left < 0.15)), 4),
        "step_left_over_step_median_error": round(float(np.median(in_turns)), 4),
        "step_left_over_step_within_15_percent": round(float(np.mean(in_turns < 0.15)), 4),
        "interval_holds": round(float(np.mean(held)), 4) if held else None,
        "gains_compared": len(gains),
        "gain_median_error": round(float(np.median(gains)), 4),
        "gain_within_15_percent": round(float(np.mean(np.array(gains) < 0.15)), 4),
    }


def _gain_error(fix: dict[str, Any]) -> float:
    """Of the share of the step that goes."""
    return (1 - fix["said_left_us"] / fix["said_now_us"]) / (1 - fix["fixed_over_slow"]) - 1


def _error_in_turns(fix: dict[str, Any]) -> float:
    """Of the step left over the step: measured in turns, so that a host that changes its speed changes both."""
    return float(fix["said_left_us"] / fix["said_now_us"] / fix["fixed_over_slow"] - 1)


def _quantile(values: list[float], share: float) -> float:
    return round(float(np.quantile(values, share)), 3)


if __name__ == "__main__":
    raise SystemExit(main())
