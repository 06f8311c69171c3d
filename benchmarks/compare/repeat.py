"""Makes a long trace out of one recorded step: the step again and again, with noise, and with one kind of kernel left out.

python -m benchmarks.compare.repeat TRACE OUT --megabytes 100 --seed 1 [--without aten::neg]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IDS = ("External id", "correlation", "Ev Idx", "Record function id", "Sequence number")
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_FAR = 1 << 22
_NOISE = 0.01


def repeated(source: Path, out: Path, *, size: int, seed: int, without: str = "") -> int:
    """Write a trace of at least `size` bytes; the number of steps in it.

    Args:
        source: a trace with recorded steps; its last one is taken.
        without: operator whose device work, and the calls that launch it, are left out.
    """
    draw = random.Random(seed)
    opened = gzip.open(source, "rt") if source.suffix == ".gz" else source.open()
    with opened as file:
        trace = json.load(file)
    step, rest = _last_step(trace.pop("traceEvents"), without)
    period = max(e["ts"] + e.get("dur", 0) for e in step) - min(e["ts"] for e in step) + 20.0
    head = json.dumps(trace)
    written, count = 0, 0
    with out.open("w") as to:
        to.write(head[:-1] + ', "traceEvents": [\n')
        to.write(",\n".join(json.dumps(event) for event in rest))
        while written < size:
            text = "".join(f",\n{json.dumps(event)}" for event in _shifted(step, count, period, draw))
            to.write(text)
            written, count = written + len(text), count + 1
        to.write("\n]}\n")
    return count


def _last_step(events: list[dict[str, Any]], without: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    marks = [
        e for e in events if str(e.get("name", "")).startswith("ProfilerStep#") and e.get("cat") == "user_annotation"
    ]
    mark = max(marks, key=lambda e: e["ts"])
    low, high = mark["ts"], mark["ts"] + mark["dur"]
    host = [e for e in events if e.get("ph") == "X" and low <= e["ts"] < high and e.get("cat") not in _DEVICE]
    host = [e for e in host if e.get("cat") != "gpu_user_annotation"]
    left_out = _calls_inside(host, without)
    host = [e for e in host if e.get("args", {}).get("correlation") not in left_out or "cuda" not in str(e.get("cat"))]
    launched = {e["args"]["correlation"] for e in host if "correlation" in e.get("args", {})}
    work = [e for e in events if e.get("cat") in _DEVICE and e["args"].get("correlation") in launched]
    return sorted(host + work, key=lambda e: e["ts"]), [e for e in events if e.get("ph") == "M"]


def _calls_inside(host: list[dict[str, Any]], operator: str) -> set[int]:
    """Correlation ids of the calls made inside an operator."""
    spans = [(e["tid"], e["ts"], e["ts"] + e["dur"]) for e in host if operator and e["name"] == operator]
    return {
        e["args"]["correlation"]
        for e in host
        if "correlation" in e.get("args", {}) and any(t == e["tid"] and a <= e["ts"] < b for t, a, b in spans)
    }


def _shifted(step: list[dict[str, Any]], count: int, period: float, draw: random.Random) -> Iterator[dict[str, Any]]:
    for event in step:
        copy = {**event, "ts": round(event["ts"] + count * period, 3)}
        if event.get("cat") in _DEVICE:
            copy["dur"] = round(event["dur"] * max(0.5, draw.gauss(1.0, _NOISE)), 3)
        if event["name"].startswith("ProfilerStep#"):
            copy["name"] = f"ProfilerStep#{count + 2}"
        if "args" in event:
            copy["args"] = {
                k: v + count * _FAR if k in _IDS and isinstance(v, int) else v for k, v in event["args"].items()
            }
        yield copy


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", default="")
    asked = parser.parse_args()
    steps = repeated(asked.source, asked.out, size=int(asked.megabytes * 1e6), seed=asked.seed, without=asked.without)
    print(f"{asked.out.name}: {steps} steps, {asked.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
