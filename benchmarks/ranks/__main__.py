"""Runs real jobs in which one rank does more than the others, records them, and asks `lanewise ranks` which and why.

    python -m benchmarks.ranks --device cuda --nproc 2 -o ranks.json       jobs on two GPUs, as many as eight minutes allow
    python -m benchmarks.ranks --only sleep,none                           on the CPU, with gloo
    python -m benchmarks.ranks --only mixed,mixed-sleep --nproc 4          of four ranks, which no other job needs
    python -m benchmarks.ranks --again ranks.json --keep KEPT              reads again what was recorded, and runs nothing

Before it is recorded each job runs with the plant and without it in turns, in the same processes (`benchmarks.ranks.job`).
What the plant takes on the late rank (`true_ms`) stands beside what the rank is said to do more (`said_ms`), and the step
without the plant (`without_ms`) beside what the job is said to take without its late rank (`said_without_ms`).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import described
from benchmarks.ranks.job import BEFORE

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
    "calls": ("operators",),
}

# Steps that `lanewise run` times in a job of several ranks, has the profiler warm up for, and records.
_TIMED, _WARMUP, _ACTIVE = 20, 2, 10

_LONGEST_S = 180.0

_TOLD = (
    "true_ms", "recorded_ms", "said_ms", "with_ms", "said_with_ms", "without_ms", "said_without_ms", "longer_ms",
)  # fmt: skip


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
    Case("copy", "ddp", "copy", 6.0),
    Case("gc", "ddp", "gc", 8.0),
    Case("calls", "ddp", "calls", 5.0),
    Case("kernel", "ddp", "kernel", 12.0),
    Case("tensor-python", "tensor", "python", 5.0),
    Case("expert-copy", "expert", "copy", 5.0),
    Case("pipeline-sleep", "pipeline", "sleep", 6.0),
    Case("pipeline", "pipeline", "none", 0.0),
    Case("loader", "ddp", "loader", 6.0),
    Case("fsdp-sleep", "fsdp", "sleep", 5.0),
    Case("fsdp", "fsdp", "none", 0.0),
    Case("tensor", "tensor", "none", 0.0),
    Case("expert", "expert", "none", 0.0),
    Case("python", "ddp", "python", 4.0),
    # Of other sizes: what was mended after the jobs above is checked on these.
    Case("sleep-4", "ddp", "sleep", 4.0),
    Case("copy-9", "ddp", "copy", 9.0),
    Case("calls-8", "ddp", "calls", 8.0),
    Case("loader-4", "ddp", "loader", 4.0),
    Case("gc-6", "ddp", "gc", 6.0),
    Case("python-7", "ddp", "python", 7.0),
    Case("kernel-20", "ddp", "kernel", 20.0),
    Case("expert-sleep", "expert", "sleep", 3.0),
    Case("tensor-copy", "tensor", "copy", 6.0),
    Case("pipeline-sleep-4", "pipeline", "sleep", 4.0),
    Case("fsdp-python", "fsdp", "python", 7.0),
    Case("mixed", "mixed", "none", 0.0),
    Case("mixed-sleep", "mixed", "sleep", 5.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--only", default="", help="names of jobs in their order, with commas between them")
    parser.add_argument("--seconds", type=float, default=420.0, help="no job is begun after that")
    parser.add_argument("--keep", type=Path, help="folder for the traces")
    parser.add_argument("--unread", action="store_true", help="record only: --again reads later")
    parser.add_argument("--again", type=Path, help="results of an earlier run, whose traces --keep names")
    parser.add_argument("-o", "--output", type=Path, default=Path("ranks-results.json"))
    args = parser.parse_args()
    if args.again:
        read_again(args)
        return
    begun = time.monotonic()
    only = args.only.split(",") if args.only else [case.name for case in CASES if case.kind != "mixed"]
    wanted = [next(case for case in CASES if case.name == name) for name in only]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        kept = args.keep or Path(scratch)
        started = [Started(case, args, kept / case.name) for case in wanted[:1]]
        for case, following in zip(wanted, [*wanted[1:], None], strict=True):
            if time.monotonic() - begun > args.seconds:
                break
            # The next job imports what it needs while this one runs.
            started += [Started(following, args, kept / following.name)] if following else []
            results.append(run_case(case, args, started.pop(0)))
            args.output.write_text(json.dumps(summary(results, args), indent=1) + "\n")
            print(told(results[-1]), flush=True)
        for one in started:
            one.kill()
    print(json.dumps(summary(results, args)["totals"]))


class Started:
    """The ranks of a job, which begin once they are let: as torchrun starts them, but without what it costs."""

    def __init__(self, case: Case, args: argparse.Namespace, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.gate = folder, folder / "begin"
        self.late = args.nproc - 1 if case.plant != "none" else -1
        words = [sys.executable, "-m", "lanewise", "run", "--no-explain", "-q", "--skip", str(BEFORE)]
        words += ["--warmup", str(_WARMUP), "--active", str(_ACTIVE)]
        words += ["--stacks"] if case.stacks else []
        words += ["-o", str(folder / "traces"), str(JOB), "--kind", case.kind, "--plant", case.plant]
        words += ["--late", str(self.late), "--ms", str(case.ms), "--device", args.device]
        words += ["--truth", str(folder / "truth.json"), "--gate", str(self.gate)]
        port = free_port()
        self.ranks = [
            subprocess.Popen(
                words,
                env=environment() | rank_of_job(rank, args.nproc, port),
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"errors-{rank}.txt").open("w"),
            )
            for rank in range(args.nproc)
        ]

    def finished(self) -> None:
        """Let them begin, and wait for their end."""
        self.gate.touch()
        until = time.monotonic() + _LONGEST_S
        while any(one.poll() is None for one in self.ranks):
            if time.monotonic() > until or any(one.poll() for one in self.ranks):
                break
            time.sleep(0.05)
        failed = [rank for rank, one in enumerate(self.ranks) if one.poll() != 0]
        self.kill()
        if failed:
            said = (self.folder / f"errors-{failed[0]}.txt").read_text().strip().splitlines()
            raise ValueError(f"rank {failed[0]}: {said[-1:]}")

    def kill(self) -> None:
        for one in self.ranks:
            one.kill()
            one.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def rank_of_job(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank in its environment."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def run_case(case: Case, args: argparse.Namespace, job: Started) -> dict[str, Any]:
    """One job, recorded, and what is said of it."""
    result: dict[str, Any] = {**asdict(case), "late": job.late, "right": False}
    begun = time.monotonic()
    try:
        job.finished()
        ranks = [json.loads((job.folder / f"truth-{rank}.json").read_text()) for rank in range(args.nproc)]
        result |= truth_of(ranks)
        result["recorded_s"] = round(time.monotonic() - begun, 1)
        if not args.unread:
            result |= judged(answer_of(job.folder), case, job.late)
    except (subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        # The command names places of the machine.
        output = str(getattr(error, "stderr", "") or error)
        result["error"] = f"{type(error).__name__}: {output.strip().splitlines()[-1:]}"[:1500]
    result["seconds"] = round(time.monotonic() - begun, 1)
    return result


def answer_of(folder: Path) -> dict[str, Any]:
    """What `lanewise ranks` says of the traces of a job."""
    words = ["ranks", str(folder / "traces"), "--json", "--no-cache", "--no-findings"]
    return json.loads(called([sys.executable, "-m", "lanewise", *words]))


def read_again(args: argparse.Namespace) -> None:
    """The results of an earlier run with what is said of its traces now; jobs whose traces were not kept are left out."""
    before = json.loads(args.again.read_text())
    results: list[dict[str, Any]] = []
    for one in before["jobs"]:
        if not (args.keep / one["name"] / "traces").is_dir():
            continue
        case = Case(**{field.name: one[field.name] for field in fields(Case)})
        # What was measured stays.
        kept = {key: value for key, value in one.items() if not key.startswith(("said", "right"))}
        results.append(kept | judged(answer_of(args.keep / case.name), case, one["late"]))
        print(told(results[-1]), flush=True)
    args.device, args.nproc = before["device"], before["nproc"]
    after = summary(results, args) | {"machine": before["machine"]}
    args.output.write_text(json.dumps(after, indent=1) + "\n")
    print(json.dumps(after["totals"]))


def truth_of(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What the late rank does more, and the job's step with that and without: the median over the turns, ms.

    What goes with the plant is the median over the pairs of turns, which stand beside each other.
    """

    def step(name: str) -> list[float]:
        return [median(turn) for turn in zip(*(one[name] for one in ranks), strict=True)]

    pairs = list(zip(step("with_ms"), step("without_ms"), strict=True))
    plant = max((one["plant_ms"] for one in ranks), key=len)
    share = [without / with_ for with_, without in pairs]
    return {
        "true_ms": median(plant[:_TIMED]) if plant else 0.0,
        "recorded_ms": median(plant[_TIMED + _WARMUP :][:_ACTIVE]) if len(plant) > 1 else 0.0,
        "with_ms": median(with_ for with_, _ in pairs),
        "without_ms": median(without for _, without in pairs),
        "longer_ms": median(with_ - without for with_, without in pairs),
        "left_share": median(share),
        "left_share_error": 1.48 * median(abs(one - median(share)) for one in share) / len(share) ** 0.5,
        "turns": {
            "with_ms": [round(with_, 3) for with_, _ in pairs],
            "without_ms": [round(without, 3) for _, without in pairs],
            # What each rank's host does by itself, its waits left out.
            "own_with_ms": [[round(each, 3) for each in one["own_with_ms"]] for one in ranks],
            "own_without_ms": [[round(each, 3) for each in one["own_without_ms"]] for one in ranks],
        },
        "after": [[[round(each, 3) for each in both] for both in one["after_ms"]] for one in ranks],
    }


def judged(answer: dict[str, Any], case: Case, late: int) -> dict[str, Any]:
    """What was said, and whether it is right."""
    rows = [row for row in answer["tables"]["ranks"]["rows"] if row["cause"]]
    said = [sentence(block) for block in answer["statements"]["ranks"]]
    found: dict[str, Any] = {"said": said, "said_late": [row["rank"] for row in rows]}
    for block in answer["statements"]["ranks"]:
        values = block.get("values", {})
        if "without" in values:
            found["said_with_ms"] = values["step"]["value"] / 1e6
            found["said_without_ms"] = values["without"]["value"] / 1e6
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


def called(words: list[str]) -> str:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=_LONGEST_S, check=True)
    return done.stdout


def environment() -> dict[str, str]:
    path = f"{_SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def summary(results: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    planted = [one for one in results if one["plant"] != "none"]
    delays = [
        abs(one["said_ms"] / one["true_ms"] - 1) for one in planted if one.get("right_rank") and one.get("true_ms")
    ]
    # Both as shares of the step as it is: a host drifts between the turns and the recording.
    steps = [
        abs(one["said_without_ms"] / one["said_with_ms"] * one["with_ms"] / one["without_ms"] - 1)
        for one in planted
        if "said_without_ms" in one
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
            "delay off by, worst": max(delays, default=None),
            "delay off by, median": median(delays) if delays else None,
            "step without off by, worst": max(steps, default=None),
            "step without off by, median": median(steps) if steps else None,
        },
        "jobs": results,
    }


def told(one: dict[str, Any]) -> str:
    numbers = " ".join(f"{key} {one[key]:.2f}" for key in _TOLD if key in one)
    verdict = "right" if one["right"] else "WRONG"
    return f"{one['name']}: {verdict} {numbers} {one.get('said_cause', '')} {one.get('error', '')} ({one['seconds']} s)"


if __name__ == "__main__":
    main()
