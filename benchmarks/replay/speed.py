"""What replay and a whole explanation cost on large traces, beside `orjson.loads` of the same file.

    python -m benchmarks.replay.speed [--samples 3] [--events 100000 350000 1000000] [--out RESULT.json]

Generated traces (about 30, 110 and 330 MB). Every sample is a fresh process; the arms take turns, so that a change of the
machine's load falls on all of them. Arms: `orjson.loads` with the collector off; `lanewise explain` as a user starts it,
start-up included; graph and twenty simulations, on what has been read. Each again pinned to one core, and beside another
busy process. Needs orjson.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.reader.generate import write
from benchmarks.sampled import sample, spread

_ORJSON = """
import gc, json, sys, time
import orjson
gc.disable()
begun = time.perf_counter()
orjson.loads(open(sys.argv[1], "rb").read())
print(json.dumps({"seconds": time.perf_counter() - begun}))
"""

_EXPLAIN = """
import json, subprocess, sys, time
words = [sys.executable, "-m", "lanewise", "explain", sys.argv[1], "--no-cache"]
begun = time.perf_counter()
subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
print(json.dumps({"seconds": time.perf_counter() - begun}))
"""

_REPLAY = """
import json, resource, sys, time
from lanewise.measure.facts import Facts
from lanewise.replay.simulate import simulate
from lanewise.trace.reader import read
facts = Facts(read(sys.argv[1], cache=False))
facts.steady, facts.host, facts.steps
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
begun = time.perf_counter()
graph = facts.graph
for _ in range(20):
    simulate(graph)
print(json.dumps({
    "seconds": time.perf_counter() - begun, "events": len(facts.trace), "nodes": len(graph),
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "read_peak_mb": before,
}))
"""

_ARMS = {"orjson": _ORJSON, "explain": _EXPLAIN, "replay": _REPLAY}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 350_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    sizes = " ".join(map(str, asked.events))
    result: dict[str, Any] = {
        "what": "replay, and a whole explanation, beside orjson.loads of the same file",
        "command": f"python -m benchmarks.replay.speed --samples {asked.samples} --events {sizes}",
        "machine": {
            "cpus": os.cpu_count(),
            "architecture": platform.machine(),
            "load_before": round(os.getloadavg()[0], 1),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "msgspec", "orjson")},
        },
        "goals": {"explain_over_orjson": 1.0, "replay_s_at_1e6_events": 3.0, "peak_over_file": 1.0},
        "traces": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for events in asked.events:
            path = Path(folder) / f"{events}.json"
            write(path, events)
            result["traces"].append(_measured(path, asked.samples))
            path.unlink()
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if asked.out is not None:
        asked.out.write_text(text)


def _measured(path: Path, samples: int) -> dict[str, Any]:
    size = path.stat().st_size / 2**20
    row: dict[str, Any] = {"trace_mb": round(size, 1)}
    places: dict[str, Callable[[str], dict[str, Any]]] = {
        "free": partial(_run, path),
        "one core": partial(_pinned, path),
        "beside a busy process": partial(_beside, path),
    }
    for name, run in places.items():
        taken: dict[str, list[dict[str, Any]]] = {arm: [] for arm in _ARMS}
        for _ in range(samples):
            for arm, script in _ARMS.items():
                taken[arm].append(run(script))
        seconds = {arm: [one["seconds"] for one in each] for arm, each in taken.items()}
        over = [e / o for e, o in zip(seconds["explain"], seconds["orjson"], strict=True)]
        row[name] = {arm: spread(values) for arm, values in seconds.items()} | {"explain_over_orjson": spread(over)}
        last = taken["replay"][-1]
        row |= {"events": last["events"], "nodes": last["nodes"]}
        row["replay_peak_over_file"] = round((last["peak_mb"] - last["read_peak_mb"]) / size, 2)
    return row


def _run(path: Path, script: str) -> dict[str, Any]:
    return sample(script, str(path))


def _pinned(path: Path, script: str) -> dict[str, Any]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        return sample(script, str(path))
    finally:
        os.sched_setaffinity(0, before)


def _beside(path: Path, script: str) -> dict[str, Any]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            return sample(script, str(path))
        finally:
            busy.kill()


if __name__ == "__main__":
    main()
