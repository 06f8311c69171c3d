"""Measures the reader beside its peers, each in a process of its own, in rounds; writes the results as JSON.

    python benchmarks/reader/bench.py [--rounds 5] [--events 1000000] [--out FILE] [--skip-largest]

Every round runs every case once, so that a change of the machine's load falls on all of them. Work files and the peers'
environments go to the user's cache (`--work` moves them). The C++ floor needs simdjson's headers (Debian:
libsimdjson-dev); HTA is installed by pip into an environment of its own. What cannot be had is left out and named.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SLOPE = (10_000, 100_000, 1_000_000, 10_000_000)
SMALL = REPOSITORY / "tests" / "data" / "h100" / "01_matmul_add_64_cold_eager.json.gz"

_PEER_EVENTS = (100_000, 300_000, 1_000_000)
"""Sizes for the peers. The largest takes HTA minutes: it runs once, in the first round."""

Sample = dict[str, float]
Samples = dict[tuple[str, str], list[Sample]]


def generated(work: Path, name: str, *options: str) -> Path:
    """A generated trace, made once."""
    path = work / name
    if not path.exists():
        unfinished = path.with_name(f"unfinished-{name}")
        subprocess.run([sys.executable, str(HERE / "generate.py"), str(unfinished), *options], check=True)
        unfinished.rename(path)
    return path


def measure(words: list[str], environment: dict[str, str]) -> Sample | None:
    """One run of a case; None if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def floor(work: Path) -> Path | None:
    """The C++ program, compiled; None without a compiler or simdjson."""
    compiler = shutil.which("g++")
    binary = work / "floor"
    if compiler is None:
        return None
    command = [compiler, "-O3", "-march=native", "-std=c++17", str(HERE / "floor.cpp"), "-lsimdjson", "-o", str(binary)]
    return binary if subprocess.run(command, capture_output=True, check=False).returncode == 0 else None


def hta(work: Path) -> Path | None:
    """The interpreter of HTA's environment; None if it cannot be installed."""
    folder = work / "hta"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", "HolisticTraceAnalysis"]
        if subprocess.run(install, capture_output=True, check=False).returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
    return python if python.exists() else None


def summary(samples: list[Sample]) -> dict[str, Any]:
    """Median and spread of each number."""
    result: dict[str, Any] = {"samples": len(samples)}
    for key in ("seconds", "cpu_seconds", "peak_mb"):
        values = [sample[key] for sample in samples if key in sample]
        if values:
            result[key] = {
                "median": round(statistics.median(values), 3),
                "min": round(min(values), 3),
                "max": round(max(values), 3),
            }
    return result


def environment_of(work: Path) -> dict[str, str]:
    """The environment of every case: this checkout's package, a store of its own."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "LANEWISE_CACHE_DIR": str(work / "store"), "NO_COLOR": "1"}


def facts() -> dict[str, Any]:
    """What the numbers depend on; nothing that names the machine."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for package in ("msgspec", "numpy", "polars", "orjson"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        model = next(
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.machine()
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system(), "versions": versions}


def cases(work: Path, events: int) -> dict[str, dict[str, list[str]]]:
    """Traces, and for each the cases with their command lines."""
    python = [sys.executable, str(HERE / "case.py")]
    size = ["--events", str(events)]
    plain = generated(work, f"plain-{events}.json", *size)
    stacks = generated(work, f"stacks-{events}.json", *size, "--python")
    packed = generated(work, f"plain-{events}.json.gz", *size, "--gzip")
    full = ("read", "read in one process", "orjson.loads, gc off", "json.loads, gc off", "msgspec untyped, gc off")
    whole = ("explain", "explain and keep", "explain from the cache", "explain anew from the cache")
    found = {
        "plain": {name: [*python, name, str(plain)] for name in (*full, *whole)},
        "stacks": {name: [*python, name, str(stacks)] for name in (*full, *whole)},
        "gzip": {name: [*python, name, str(packed)] for name in ("read", "explain")},
        "small": {name: [*python, name, str(SMALL)] for name in ("explain", "help")},
    }
    if binary := floor(work):
        for name, path in (("plain", plain), ("stacks", stacks)):
            found[name]["C++ simdjson, one pass"] = [str(binary), str(path)]
    if peer := hta(work):
        for count in (count for count in _PEER_EVENTS if count <= events):
            path = generated(work, f"plain-{count}.json", "--events", str(count))
            found[f"peers, {count} events"] = {
                "explain": [*python, "explain", str(path)],
                "HTA: load and temporal breakdown": [str(peer), str(HERE / "peer_hta.py"), str(path)],
            }
    return found


def slope(work: Path, environment: dict[str, str], rounds: int, largest: int) -> dict[str, Any]:
    """Read time against events, and the exponent between the ends (1 is linear)."""
    points: list[dict[str, Any]] = []
    for events in (size for size in SLOPE if size <= largest):
        path = generated(work, f"plain-{events}.json", "--events", str(events))
        words = [sys.executable, str(HERE / "case.py"), "read", str(path)]
        samples = [sample for _ in range(rounds) if (sample := measure(words, environment))]
        points.append({"events": events, "mb": round(path.stat().st_size / 1e6, 1), **summary(samples)})
        print(points[-1], file=sys.stderr)
    first, last = points[1], points[-1]  # at 10^4 the start of the interpreter and imports dominate
    ratio = last["cpu_seconds"]["median"] / first["cpu_seconds"]["median"]
    return {"points": points, "exponent": round(math.log(ratio) / math.log(last["events"] / first["events"]), 3)}


def results_of(
    options: argparse.Namespace, load_before: float, samples: Samples, slope_points: dict[str, Any] | None
) -> dict[str, Any]:
    """Everything that is known so far: written after every round, so that a run may be cut short."""
    traces: dict[str, dict[str, Any]] = {}
    for (trace, name), runs in samples.items():
        traces.setdefault(trace, {})[name] = summary(runs)
    ratios: dict[str, Any] = {}
    for trace, of_trace in traces.items():
        base = of_trace.get("orjson.loads, gc off")
        if base is None:
            continue
        ratios[trace] = {
            name: {
                key: round(numbers[key]["median"] / base[key]["median"], 3)
                for key in ("seconds", "cpu_seconds")
                if key in numbers
            }
            for name, numbers in of_trace.items()
        }
    only = f" --only {' '.join(options.only)}" if options.only else ""
    return {
        "command": f"python benchmarks/reader/bench.py --rounds {options.rounds} --events {options.events}{only}",
        **facts(),
        "load_average": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
        "not_measured": {"TraceLens": "not on the package index under its own name"},
        "traces": traces,
        "against orjson.loads, gc off": ratios,
        "slope": slope_points,
    }


def merged(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Earlier results with what was measured anew in their place; what it was measured under stands beside it."""
    if not kept:
        return new
    key = "against orjson.loads, gc off"
    again = {name: new[name] for name in ("command", "load_average", "versions")}
    return {
        **kept,
        "traces": {**kept["traces"], **new["traces"]},
        key: {**kept[key], **new[key]},
        "measured_again": {**kept.get("measured_again", {}), **dict.fromkeys(new["traces"], again)},
    }


def write(out: Path, results: dict[str, Any]) -> None:
    """Replace the results file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache" / "lanewise-bench")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--skip-largest", action="store_true", help="leave out 10^7 events")
    parser.add_argument("--slope-rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="TRACE", help="measure these traces anew, keep the other results")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    environment = environment_of(options.work)
    load_before = os.getloadavg()[0]
    found = cases(options.work, options.events)
    out = options.out or REPOSITORY / "benchmarks" / "results" / f"{os.cpu_count()}-core-vm" / "reader.json"
    kept: dict[str, Any] = json.loads(out.read_text()) if options.only else {}
    if options.only:
        found = {trace: words for trace, words in found.items() if trace in options.only}
    samples: Samples = {}
    for number in range(options.rounds):
        for trace, words in found.items():
            for name, command in words.items():
                if number and name.startswith("HTA") and str(_PEER_EVENTS[-1]) in trace:
                    continue
                if name == "explain and keep":
                    shutil.rmtree(options.work / "store", ignore_errors=True)
                sample = measure(command, environment)
                if sample is None:
                    print(f"{trace}: {name} failed", file=sys.stderr)
                    continue
                samples.setdefault((trace, name), []).append(sample)
                print(f"round {number + 1} {trace:7} {name:34} {sample['seconds']:8.3f} s", file=sys.stderr)
        write(out, merged(kept, results_of(options, load_before, samples, None)))
    if options.only:
        return
    points = slope(options.work, environment, options.slope_rounds, 10**6 if options.skip_largest else 10**7)
    write(out, results_of(options, load_before, samples, points))
    print(out, file=sys.stderr)


if __name__ == "__main__":
    main()
