"""The recorder's distortion beside one measured by hand, for launch-bound programs.

    python3 -m benchmarks.experiments.distortion --rounds 9 -o OUT.json [--device cuda] [--programs llm_train ...]

Needs torch only. Every round runs each arm once, in random order, each in a fresh process: `hand` and `null` of
`by_hand.py`, and `recorder`, the example recorded with the default window. Per arm and program: the ratio of medians
within each process, since a process differs from the next by up to half where steps take tens of microseconds; the
median over processes; its 95 % bootstrap interval, whole rounds resampled. An output that exists keeps its other
programs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.experiments import by_hand
from benchmarks.experiments.one import record
from benchmarks.fresh import call

ARMS = ("hand", "null", "recorder")
RESAMPLES = 10_000

PROGRAMS: dict[str, tuple[str, list[str], str | None]] = {
    "llm_train": ("llm.py", ["train", "--shape", "tiny", "--prompt", "16", "--optimizer", "loop"], None),
    "llm_prefill": ("llm.py", ["prefill", "--shape", "tiny", "--prompt", "16"], None),
    "mlp": ("mlp.py", ["--kind", "swiglu"], None),
    "matmul_add": ("matmul_add.py", ["--size", "64"], "step"),
}
"""Script, arguments and step function of what `by_hand.py` builds under the same name."""


def one(program: str, arm: str, device: str, folder: str, number: int) -> dict[str, Any]:
    """One process: its two medians, microseconds, and their ratio."""
    script, arguments, step_on = PROGRAMS[program]
    order: dict[str, Any] = {"name": f"{program}-{number}", "script": script, "plan": {}, "flags": {}, "out": folder}
    order |= {"arguments": [*arguments, "--device", device], "step_on": step_on, "device": device}

    def work() -> dict[str, Any]:
        if device == "cpu":
            # Threads that wait for each other on a busy machine measure the machine.
            torch.set_num_threads(1)
        return record(order) if arm == "recorder" else by_hand.measure(program, arm, device)

    printed = Path(folder) / "printed"
    result = call(work, seconds=120, output=printed)
    if "error" in result:
        raise RuntimeError(f"{program}, {arm}: {result['error']}: {printed.read_text(errors='replace')[-500:]}")
    if arm == "recorder":
        facts = result["recorded"]
        plain, second = facts["unprofiled"], facts["profiled"]
        return {
            "plain_us": plain["median_us"],
            "second_us": second["median_us"],
            "ratio": facts["distortion"],
            "steps": [plain["steps"], second["steps"]],
            "methods": [plain["method"], second["method"]],
            "interval": [facts.get("distortion_low"), facts.get("distortion_high")],
            "stopped_by": facts["stopped_by"],
        }
    plain, second = statistics.median(result["plain_us"]), statistics.median(result["second_us"])
    return {"plain_us": round(plain, 3), "second_us": round(second, 3), "ratio": round(second / plain, 4)}


def verdict(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians over the rounds and how far the recorder is from the hand."""
    ratios = {arm: [sample["ratio"] for sample in given] for arm, given in samples.items()}
    median = {arm: statistics.median(given) for arm, given in ratios.items()}
    rounds = len(ratios["hand"])
    draw = random.Random(0)
    resampled: dict[str, list[float]] = {"hand": [], "null": [], "recorder": [], "recorder_over_hand": []}
    for _ in range(RESAMPLES):
        chosen = draw.choices(range(rounds), k=rounds)
        once = {arm: statistics.median(given[at] for at in chosen) for arm, given in ratios.items()}
        for arm, value in once.items():
            resampled[arm].append(value)
        resampled["recorder_over_hand"].append(once["recorder"] / once["hand"])
    over = median["recorder"] / median["hand"]
    return {
        "rounds": rounds,
        "plain_us": round(statistics.median(sample["plain_us"] for sample in samples["null"]), 3),
        **{arm: round(value, 4) for arm, value in median.items()},
        "recorder_over_hand": round(over, 4),
        "within_10_percent": abs(over - 1) <= 0.1,
        "intervals": {name: [_at(values, 0.025), _at(values, 0.975)] for name, values in resampled.items()},
        # Steps of different processes against each other: what an A/B without pairing would have said.
        "hand_across_processes": round(
            statistics.median(sample["second_us"] for sample in samples["hand"])
            / statistics.median(sample["plain_us"] for sample in samples["null"]),
            4,
        ),
        "samples": samples,
    }


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)


def measure(program: str, device: str, rounds: int, seconds: float = 600.0) -> dict[str, Any]:
    """All rounds of one program, or as many as begin within `seconds`; at least one."""
    end = time.monotonic() + seconds
    samples: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    draw = random.Random(program)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            if number and time.monotonic() > end:
                break
            for arm in draw.sample(ARMS, len(ARMS)):
                samples[arm].append(one(program, arm, device, folder, number))
    return verdict(samples)


def table(result: dict[str, Any]) -> str:
    """The results as the documentation shows them."""
    lines = ["| program | step | by hand | recorder | recorder / hand | without a profiler in either half |"]
    lines.append("|---|---|---|---|---|---|")
    for name, found in result["programs"].items():
        step = f"{found['plain_us']:,.0f} us"
        ratios = [
            f"{found[key]:.2f} ({found['intervals'][key][0]:.2f} to {found['intervals'][key][1]:.2f})"
            for key in ("hand", "recorder", "recorder_over_hand", "null")
        ]
        lines.append(f"| `{' '.join([PROGRAMS[name][0], *PROGRAMS[name][1]])}` | {step} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="CUDA if there is any")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=600.0, help="for one program; no round begins after them")
    parser.add_argument("--programs", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="measure nothing; print the output file as Markdown")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.output.read_text(encoding="utf-8"))))
        return
    # Asked in a process of its own: this one must not touch the device.
    card = call(lambda: {"is": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}, seconds=60)["is"]
    if args.device is None:
        args.device = "cuda" if card else "cpu"
    result: dict[str, Any] = {"schema": 1, "id": "recorder-distortion", "programs": {}}
    if args.output.exists():
        result = json.loads(args.output.read_text(encoding="utf-8"))
    for program in args.programs:
        load = os.getloadavg()[0]
        found = measure(program, args.device, args.rounds, args.seconds)
        result["programs"][program] = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": {
                "device": card if args.device == "cuda" else "cpu",
                "processor": platform.machine(),
                "cores": os.cpu_count(),
                "load_before": round(load, 2),
            },
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            **found,
        }
        # Written after every program: what has been measured is kept whatever happens next.
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        shown = {key: value for key, value in found.items() if key != "samples"}
        print(program, json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
