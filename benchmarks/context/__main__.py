"""The cost of the collector: `python -m benchmarks.context [--device cuda] [--seconds S] [--out FILE]`.

Every measurement is a fresh process; rounds of all of them follow one another, with the arms of a group in random
order, until the time is used. The result file is written after each, and running again adds to it, beginning with what
has been measured least.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.context.runner import Job, run
from benchmarks.context.summary import summary

KINETO = ("profiler", "profiler_stack", "profiler_all")
PROTON = ("proton_shadow", "proton_python")


def plan(device: str) -> list[list[Job]]:
    """Groups of jobs, the most telling first."""
    cuda = device == "cuda"
    ours = ("null", "watch", "watch_operators", *(("watch_host",) if cuda else ()))
    others = (*KINETO, *(PROTON if cuda else ()))
    llama = [Job("aba", "llama", arm, 12) for arm in (*ours, *(("watch_detach",) if cuda else ()))]
    llama += [Job("aba", "llama", arm, 4) for arm in others]
    adds = [Job("aba", "adds", arm, 2) for arm in ("null", "watch")] + [Job("aba", "adds", arm, 1) for arm in others]
    wide = [Job("aba", "wide", arm, 12) for arm in ("null", "watch", "profiler", *(PROTON if cuda else ()))]
    agreement = [Job("agreement", "wide", "watch", 3), Job("agreement", "small_llama", "watch", 5)]
    return [
        [Job("pairs", "llama", ",".join(ours), 32)],
        *([agreement] if cuda else []),
        llama,
        [Job("pairs", "adds", "null,watch", 4)],
        [Job("pairs", "adds", ",".join(ours[2:]), 4)],
        *([[Job("pairs", "wide", "null,watch", 24)]] if cuda else []),
        [Job("turns", "small_llama", arm, 16) for arm in ("null", "watch")],
        adds,
        *([wide] if cuda else []),
        [Job("size", "small_llama", "watch", count) for count in ((200, 2000) if cuda else (200, 20000))],
    ]


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=300.0, help="no measurement begins later than this")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="kinds, programs or arms")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds that one measurement may take")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/context-cpu.json"))
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    results: dict[str, list[dict[str, Any]]] = {}
    if given.out.exists():
        results = json.loads(given.out.read_text())["measurements"]
    _build()
    # Every process is a copy of this one, which has torch and has used nothing of it.
    import torch  # noqa: F401

    import lanewise  # noqa: F401

    for _ in range(given.rounds):
        # What has been measured least comes first.
        for group in sorted(plan(given.device), key=lambda group: min(_times(results, job) for job in group)):
            for job in random.sample(group, len(group)):
                if given.only and not set(given.only) & set(job[:3]):
                    continue
                left = until - time.monotonic()
                if left <= 0:
                    break
                begin = time.monotonic()
                answer = run(job, given.device, min(given.longest, left + 5))
                print(f"{time.monotonic() - begin:6.1f} s", flush=True)
                for name, part in _parts(job, answer):
                    results.setdefault(name, []).append(part)
                    print(f"  {name}: {_brief(results, name)}", flush=True)
                # A run that is cut short keeps what it has.
                write(given.out, given.device, results)


def _parts(job: Job, answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The answer by name: of several arms in one process, each has its own."""
    if job.kind == "pairs" and "error" not in answer:
        return [(f"pairs {job.program} {arm}", part) for arm, part in answer.items()]
    return [(f"{job.kind} {job.program} {job.arm}" + (f" {job.count}" if job.kind == "size" else ""), answer)]


def _times(results: dict[str, list[dict[str, Any]]], job: Job) -> int:
    """How often there is an answer."""
    parts = job.arm.split(",") if job.kind == "pairs" else [job.arm]
    ending = f" {job.count}" if job.kind == "size" else ""
    return min(
        sum("error" not in answer for answer in results.get(f"{job.kind} {job.program} {arm}{ending}", []))
        for arm in parts
    )


def _brief(results: dict[str, list[dict[str, Any]]], name: str) -> str:
    line = summary({name: results[name]})[name]
    shown = {k: line[k] for k in ("ratio", "interval", "during", "after", "before_ms", "error") if k in line}
    return json.dumps(shown or line)[:600]


def _build() -> None:
    """The collector is compiled before anything is measured, and not in this process."""
    code = "from lanewise.record.context import build; build.load()"
    subprocess.run([sys.executable, "-c", code], check=True)


def write(out: Path, device: str, results: dict[str, list[dict[str, Any]]]) -> None:
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
        "measurements": results,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


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
