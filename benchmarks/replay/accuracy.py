"""How well replay does on recordings whose truth is known: residual, step without the profiler, distortion, fixes, speed.

    python -m benchmarks.replay.accuracy TRACES TRUTH.json [TRACES TRUTH.json ...] --out RESULT.json

TRACES is the folder that `benchmarks.replay.record` filled, TRUTH.json what it wrote there; several runs are judged
together. Nothing is recorded here: the same recordings and code give the same numbers on every machine, but for the speed.

A fix is judged by the step that is predicted for it, over the step that was measured with it. Where nearly all of the step
goes, that asks for a small part of the old step, and it is what somebody who plans with the new step needs. Besides, by the
share of the step that is left, over the one measured in turns: a host that was slower when it was recorded changes neither
of these two. Pairs count, not recordings: one that was recorded with two sets of options would count twice.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import combinations
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

CLOSE = 0.15
"""A predicted step off by less than this counts as right."""

NEARLY_ALL = 0.1
"""Where a fix leaves less of the step than this, a few per cent of the old step are several times what is left."""

WORTH = 0.05
"""A fix that gives less than this share of the step has no gain that could be compared."""

SAME_SPEED = 0.1
"""The host of a virtual machine has faster and slower minutes: this far apart they count as the same."""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="TRACES TRUTH.json")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    if len(asked.runs) % 2:
        parser.error("each folder of traces needs its truth.json behind it")
    steps: list[dict[str, Any]] = []
    fixes: list[dict[str, Any]] = []
    timed: list[dict[str, Any]] = []
    machines: list[dict[str, Any]] = []
    for traces, truth in zip(asked.runs[::2], map(_read, asked.runs[1::2]), strict=True):
        machines.append(truth.get("machine", {}))
        for pair in truth["pairs"]:
            for recording in pair["recordings"]:
                path = traces / recording["file"]
                if path.exists():
                    _judge(pair, recording, path, steps, fixes, timed)
    result = {
        "what": "replay against recordings timed without a profiler beforehand; none of them was part of the fit",
        "lanewise": __version__,
        "machines": machines,
        "summary": _summary(steps, fixes, timed),
        "steps": steps,
        "fixes": fixes,
        "fixes_with_the_step_timed": timed,
    }
    print(json.dumps(result["summary"], indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _read(truth: Path) -> dict[str, Any]:
    return json.loads(truth.read_text())


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
    # The fixes of a program with several faults have one recording.
    known = any(judged["recording"] == recording["name"] for judged in steps)
    one = {
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
    steps += [] if known else [one]
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
        "pair": pair["name"],
        "program": pair.get("program", ""),
        "host_time_ratio": speed,
        "codes": pair["codes"],
        "first": first,
        "found": found.code if found else "",
        "slow_us": float(recording["unprofiled"]["median_us"]),
        "fixed_us": float(pair["fixed_us"]),
        "fixed_over_slow": float(pair["fixed_over_slow"]["median"]),
        "fixed_over_slow_p20_p80": [float(pair["fixed_over_slow"][end]) for end in ("p20", "p80")],
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
        "order_of_fixes": order_of_fixes(fixes),
        "order_of_fixes_with_the_step_timed": order_of_fixes(timed),
        "misses": {
            "steps": [s["recording"] for s in steps if abs(s["computed_us"] / s["measured_us"] - 1) > 0.2],
            "fixes": _kinds(fixes),
            "fixes_with_the_step_timed": _kinds(timed),
        },
    }


def _kinds(fixes: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The misses by kind: recording and error."""
    kinds: dict[str, dict[str, float]] = {}
    for fix in fixes:
        error = _error(fix)
        if abs(error) >= CLOSE:
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
    left = np.array([abs(_error(f)) for f in fixes])
    in_turns = np.array([abs(_error_in_turns(f)) for f in fixes])
    held = [f["low_us"] <= f["fixed_us"] <= f["high_us"] for f in fixes if f["low_us"] is not None]
    gains = [abs(_gain_error(f)) for f in fixes if 1 - f["fixed_over_slow"] > WORTH]
    return {
        "recordings": len(fixes),
        "pairs": len({f["pair"] for f in fixes}),
        "found": sum(bool(f["found"]) for f in fixes),
        "named_first": round(float(np.mean([f["first"] in f["codes"] for f in fixes])), 4),
        "step_left_median_error": round(float(np.median(left)), 4),
        "step_left_within_15_percent": round(float(np.mean(left < CLOSE)), 4),
        "step_left_within_15_percent_of_pairs": _of_pairs(fixes, left < CLOSE),
        "step_left_over_step_median_error": round(float(np.median(in_turns)), 4),
        "step_left_over_step_within_15_percent": round(float(np.mean(in_turns < CLOSE)), 4),
        "interval_holds": round(float(np.mean(held)), 4) if held else None,
        "intervals": len(held),
        "gains_compared": len(gains),
        "gain_median_error": round(float(np.median(gains)), 4),
        "gain_within_15_percent": round(float(np.mean(np.array(gains) < CLOSE)), 4),
    }


def _of_pairs(fixes: list[dict[str, Any]], right: np.ndarray) -> dict[str, Any]:
    """The share of pairs that are right, one whose recordings differ in part; between the bounds lie 95 % of what samples
    of as many pairs give."""
    of_pair: dict[str, list[bool]] = {}
    for fix, is_right in zip(fixes, right.tolist(), strict=True):
        of_pair.setdefault(fix["pair"], []).append(is_right)
    shares = np.array([np.mean(each) for each in of_pair.values()])
    drawn = np.random.default_rng(0).choice(shares, (4000, len(shares))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return {"share": round(float(shares.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def order_of_fixes(fixes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Kendall's tau between the gains said and measured of the fixes of one program, for programs with several faults.

    Two fixes are compared where the measurement tells which gives more: their middle 60 % of rounds do not overlap. Equal
    gains said, such as of two that were not found, count as neither right nor wrong. None where no program has several.
    """
    programs: dict[str, list[dict[str, Any]]] = {}
    for fix in fixes:
        if fix["program"]:
            programs.setdefault(fix["program"], []).append(fix)
    scores = {name: score for name, each in programs.items() if (score := _order(each))}
    if not scores:
        return None
    every = [score for each in scores.values() for score in each]
    taus = {name: round(float(np.mean(each)), 4) for name, each in scores.items()}
    return {
        "programs": len(taus),
        "compared": len(every),
        "tau_mean_of_programs": round(float(np.mean(list(taus.values()))), 4),
        "tau_of_all_compared": round(float(np.mean(every)), 4),
        "tau": taus,
    }


def _order(fixes: list[dict[str, Any]]) -> list[int]:
    """For two fixes each whose order is known: 1 where it is said so, -1 where the other way round, 0 where neither."""
    scores: list[int] = []
    for one, other in combinations(fixes, 2):
        (low, high), (other_low, other_high) = (fix["fixed_over_slow_p20_p80"] for fix in (one, other))
        known = (low > other_high) - (high < other_low)
        if known:
            said = np.sign(round(one["said_left_us"] - other["said_left_us"], 3))
            scores.append(int(said) * known)
    return scores


def _error(fix: dict[str, Any]) -> float:
    """Of the step with the fix."""
    return float(fix["said_left_us"] / fix["fixed_us"] - 1)


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
