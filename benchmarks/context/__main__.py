"""The cost of the collector: `python -m benchmarks.context [--device cuda] [--seconds S] [--stages ...] [--out FILE]`.

Processes get ready side by side, then measure in turn (`benchmarks.crew`). The result file is written after each answer,
and running again adds to it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.context.stages import PROGRAMS, STAGES, Run, members
from benchmarks.context.summary import summary
from benchmarks.crew import Crew
from benchmarks.fresh import call


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=80.0, help="what the timed stages take together")
    parser.add_argument("--stages", nargs="*", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--ready", type=float, default=60.0, help="seconds that getting ready may take")
    parser.add_argument("--join", nargs="*", type=Path, default=[], help="files whose measurements are added to it")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/context-cpu.json"))
    given = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for file in (given.out, *given.join):
        if file.exists():
            for name, answers in json.loads(file.read_text())["measurements"].items():
                results.setdefault(name, []).extend(answers)
    # Every process is a copy of this one, which has torch and has used nothing of it.
    import torch  # noqa: F401

    import lanewise  # noqa: F401

    if not given.stages:
        _write(given.out, given.device, results)
        return
    if "error" in (built := call(_build, seconds=300)):
        raise SystemExit(built["error"])
    begin = time.monotonic()

    def record(name: str, answer: dict[str, Any]) -> None:
        results.setdefault(name, []).append(answer)
        _write(given.out, given.device, results)
        shown = {key: value for key, value in summary({name: results[name]})[name].items() if key != "kernels"}
        print(f"{time.monotonic() - begin:6.1f} s  {name}: {json.dumps(shown)[:700]}", flush=True)

    with Crew(members(given.device, given.stages), seconds=given.ready) as crew:
        print(f"{time.monotonic() - begin:6.1f} s  ready: {crew.names}, lost: {crew.lost}", flush=True)
        whole = sum(STAGES[stage][1] for stage in given.stages) or 1.0
        for stage, (work, share) in STAGES.items():
            if stage in given.stages:
                work(Run(crew, given.device, given.seconds * share / whole, record, tuple(given.programs)))


def _build() -> dict[str, Any]:
    """The collector is compiled before anything is measured, and not in the process that all others are copies of."""
    from benchmarks.context import empty

    from lanewise.capture.context import native_build as build

    build.load()
    empty.compiled()
    return {}


def _write(out: Path, device: str, results: dict[str, list[dict[str, Any]]]) -> None:
    """The file: versions, summary, and all measurements."""
    import torch

    found = {
        "device": _card() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "summary": summary(results),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    # Samples by the thousand are no reading: one line for each measurement.
    lines = [f"  {json.dumps(name)}: {json.dumps(answers, separators=(',', ':'))}" for name, answers in results.items()]
    head = json.dumps(found, indent=1)[:-2]
    out.write_text(head + ',\n "measurements": {\n' + ",\n".join(lines) + "\n }\n}\n")


@cache
def _card() -> str:
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        return "unknown"


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
