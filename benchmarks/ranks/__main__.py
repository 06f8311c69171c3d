"""Runs real jobs in which one rank does more than the others, records them, and asks `lanewise ranks` which and why.

    python -m benchmarks.ranks --device cuda --nproc 2 -o ranks.json       ten jobs and more on two GPUs, six minutes
    python -m benchmarks.ranks --only sleep,none                           on the CPU, with gloo

Each job runs twice: plainly, its steps timed, and under `lanewise run`. What the plant takes on the late rank before that
recording begins, in the same processes (`true_ms`; in the plain ones `plain_ms`), stands beside what the rank is said to do
more (`said_ms`): from one start of a job to the next a host may be half as fast again. How much longer the job's steps are
than those of the healthy job (`longer_ms`) stands beside what the job is said to gain without it (`said_longer_ms`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import described

JOB = Path(__file__).with_name("job.py")
_SOURCE = Path(__file__).parents[2] / "src"
# What each cause may be called, by the words of `lanewise ranks`.
CAUSES = {
    "sleep": ("Python", "sleep"),
    "python": ("Python",),
    "gc": ("Python", "garbage collection"),
    "kernel": ("more work", "slower kernels", "operators"),
    "copy": ("copies",),
    "loader": ("data loading", "sleep"),
}


@dataclass(frozen=True)
class Case:
    """One job: its kind, and what one rank does more."""

    name: str
    kind: str
    plant: str
    ms: float
    stacks: bool = False


CASES = (
    Case("none", "ddp", "none", 0.0),
    Case("sleep", "ddp", "sleep", 5.0),
    Case("python-stacks", "ddp", "python", 5.0, stacks=True),
    Case("kernel", "ddp", "kernel", 12.0),
    Case("loader", "ddp", "loader", 6.0),
    Case("pipeline", "pipeline", "none", 0.0),
    Case("copy", "ddp", "copy", 6.0),
    Case("gc", "ddp", "gc", 8.0),
    Case("pipeline-sleep", "pipeline", "sleep", 6.0),
    Case("python", "ddp", "python", 4.0),
    Case("fsdp", "fsdp", "none", 0.0),
    Case("fsdp-sleep", "fsdp", "sleep", 5.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--only", default="", help="names of jobs, with commas between them")
    parser.add_argument("--seconds", type=float, default=330.0, help="no job is begun after that")
    parser.add_argument("--keep", type=Path, help="folder for the traces")
    parser.add_argument("-o", "--output", type=Path, default=Path("ranks-results.json"))
    args = parser.parse_args()
    begun = time.monotonic()
    wanted = [case for case in CASES if not args.only or case.name in args.only.split(",")]
    results: list[dict[str, Any]] = []
    healthy: dict[str, float] = {}
    for case in wanted:
        if time.monotonic() - begun > args.seconds:
            break
        with tempfile.TemporaryDirectory() as folder:
            where = args.keep / case.name if args.keep else Path(folder)
            where.mkdir(parents=True, exist_ok=True)
            result = run_case(case, args, where, healthy)
        results.append(result)
        args.output.write_text(json.dumps(summary(results, args), indent=1) + "\n")
        print(told(result), flush=True)
    print(json.dumps(summary(results, args)["totals"]))


def run_case(case: Case, args: argparse.Namespace, folder: Path, healthy: dict[str, float]) -> dict[str, Any]:
    """One job, plain and recorded, and what is said of it."""
    late = args.nproc - 1 if case.plant != "none" else -1
    words = [str(JOB), "--kind", case.kind, "--plant", case.plant, "--late", str(late), "--ms", str(case.ms)]
    words += ["--device", args.device]
    result: dict[str, Any] = {**asdict(case), "late": late}
    begun = time.monotonic()
    try:
        torchrun([*words, "--times", str(folder / "times")], args.nproc)
        times = [json.loads((folder / f"times-{rank}.json").read_text()) for rank in range(args.nproc)]
        step = median(one["step_ms"] for one in times)
        result["step_ms"] = step
        result["plain_ms"] = max(one["plant_ms"] for one in times)
        if case.plant == "none":
            healthy[case.kind] = step
        elif case.kind in healthy:
            result["longer_ms"] = step - healthy[case.kind]
        record = [sys.executable, "-m", "lanewise", "run", "--no-explain", "-q", "--active", "10"]
        record += ["--stacks"] if case.stacks else []
        plants = folder / "plants.json"
        torchrun(["--no-python", *record, "-o", str(folder / "traces"), *words, "--plants", str(plants)], args.nproc)
        result["true_ms"] = case.ms if case.plant == "loader" else 0.0
        if plants.exists() and case.plant != "loader":
            result["true_ms"] = json.loads(plants.read_text())["plant_ms"]
        answer = called([sys.executable, "-m", "lanewise", "ranks", str(folder / "traces"), "--json", "--no-cache"])
        result |= judged(json.loads(answer), case, late)
    except (subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        # The command names places of the machine.
        output = str(getattr(error, "stderr", "") or error)
        result["error"] = f"{type(error).__name__}: {output.strip().splitlines()[-1:]}"[:1500]
        result["right"] = False
    result["seconds"] = round(time.monotonic() - begun, 1)
    return result


def judged(answer: dict[str, Any], case: Case, late: int) -> dict[str, Any]:
    """What was said, and whether it is right."""
    rows = [row for row in answer["tables"]["ranks"]["rows"] if row["cause"]]
    said = [sentence(block) for block in answer["statements"]["ranks"]]
    found: dict[str, Any] = {"said": said, "said_late": [row["rank"] for row in rows]}
    for block in answer["statements"]["ranks"]:
        values = block.get("values", {})
        if "without" in values:
            found["said_longer_ms"] = (values["step"]["value"] - values["without"]["value"]) / 1e6
    if case.plant == "none":
        return found | {"right": not rows}
    mine = [row for row in rows if row["rank"] == str(late)]
    found["said_cause"] = mine[0]["cause"] if mine else ""
    found["said_ms"] = mine[0]["more"] / 1e6 if mine else 0.0
    found["right_rank"] = len(rows) == 1 and bool(mine)
    found["right_cause"] = found["said_cause"] in CAUSES[case.plant]
    return found | {"right": found["right_rank"] and found["right_cause"]}


def sentence(block: dict[str, Any]) -> str:
    """A sentence with its numbers, as plain text."""
    values = {key: one["value"] for key, one in block.get("values", {}).items()}
    return str(block["template"]).format(**values)


def torchrun(words: list[str], nproc: int) -> None:
    called([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc), *words])


def called(words: list[str]) -> str:
    path = f"{_SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180, check=True)
    return done.stdout


def summary(results: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    planted = [one for one in results if one["plant"] != "none"]
    errors = [
        abs(one["said_ms"] / one["true_ms"] - 1) for one in planted if one.get("right_rank") and one.get("true_ms")
    ]
    return {
        "device": args.device,
        "nproc": args.nproc,
        "machine": described(),
        "totals": {
            "planted": len(planted),
            "rank right": sum(bool(one.get("right_rank")) for one in planted),
            "cause right": sum(bool(one.get("right_cause")) for one in planted),
            "healthy": len(results) - len(planted),
            "healthy and silent": sum(bool(one["right"]) for one in results if one["plant"] == "none"),
            "delay off by, worst": max(errors, default=None),
            "delay off by, median": median(errors) if errors else None,
        },
        "jobs": results,
    }


def told(one: dict[str, Any]) -> str:
    numbers = " ".join(
        f"{key} {one[key]:.2f}"
        for key in ("step_ms", "plain_ms", "true_ms", "said_ms", "longer_ms", "said_longer_ms")
        if key in one
    )
    verdict = "right" if one["right"] else "WRONG"
    return f"{one['name']}: {verdict} {numbers} {one.get('said_cause', '')} {one.get('error', '')} ({one['seconds']} s)"


if __name__ == "__main__":
    main()
