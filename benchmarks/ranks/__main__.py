"""Runs real jobs in which one rank does more than the others, records them, and asks `lanewise ranks` which and why.

    python -m benchmarks.ranks --device cuda --nproc 2 -o ranks.json       jobs on two GPUs, as many as eight minutes allow
    python -m benchmarks.ranks --only sleep,none                           on the CPU, with gloo
    python -m benchmarks.ranks --only mixed,mixed-sleep --nproc 4          of four ranks, which no other job needs
    python -m benchmarks.ranks --again ranks.json --keep KEPT              reads again what was recorded, and runs nothing

Before it is recorded and once more afterwards each job runs with the plant and without it in turns of two steps, in the
same processes (`benchmarks.ranks.job`). What is said is held against that twice:

- in turns: computed from the recording and the turns' own steps with the plant (`benchmarks.ranks.in_turns`). The steps
  without it ran in between, so a host that drifts is in both.
- as recorded: what `lanewise ranks` says, with the 20 steps that the recorder timed a second later.

What is planted takes a job now longer and now less long, so there is more than one truth. `true_range_ms` is the least
and the most that it took over ten steps in a row, as many as are recorded; `delay_beyond` is how far what is said lies
outside of that. Recording makes Python without operators, sleep, loaders and collections no longer: `recorded_ms` is what
these took in the very steps that were recorded, and `delay_recorded` what is said against that.

`true_ms` is what the plant takes on the late rank and `said_ms` what that rank is said to do more; `without_ms` is the step
without the plant, and `said_without_ms` what the job is said to take without its late rank.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import described
from benchmarks.ranks.job import BEFORE
from benchmarks.ranks.judge import environment, in_words, judged_all

JOB = Path(__file__).with_name("job.py")

# Steps that `lanewise run` times in a job of several ranks, has the profiler warm up for, and records.
_TIMED, _WARMUP, _ACTIVE = 20, 2, 10

_RECORDED = slice(_TIMED + _WARMUP + 1, _TIMED + _WARMUP + _ACTIVE)
"""Steps of `after_ms` that are in the recording."""

_LONGEST_S = 180.0

_TIMES = ("true_in_turns_ms", "true_ms", "with_ms", "without_ms")

# By what shares what is said may be off.
_GOALS = {"delay": 0.15, "delay_beyond": 0.15, "delay_recorded": 0.15, "step": 0.05}


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
    # And of others still, for the check in turns.
    Case("python-9", "ddp", "python", 9.0),
    Case("kernel-16", "ddp", "kernel", 16.0),
    Case("loader-8", "ddp", "loader", 8.0),
    Case("gc-10", "ddp", "gc", 10.0),
    Case("copy-5", "ddp", "copy", 5.0),
    Case("calls-6", "ddp", "calls", 6.0),
    Case("sleep-7", "ddp", "sleep", 7.0),
    Case("python-6-stacks", "ddp", "python", 6.0, stacks=True),
    Case("fsdp-copy", "fsdp", "copy", 9.0),
    Case("fsdp-kernel", "fsdp", "kernel", 30.0),
    Case("pipeline-python", "pipeline", "python", 5.0),
    Case("pipeline-kernel", "pipeline", "kernel", 7.0),
    Case("tensor-sleep", "tensor", "sleep", 6.0),
    Case("expert-python", "expert", "python", 4.0),
    # And once more, after what was found wrong on those before.
    Case("kernel-13", "ddp", "kernel", 13.0),
    Case("kernel-24", "ddp", "kernel", 24.0),
    Case("calls-4", "ddp", "calls", 4.0),
    Case("calls-9", "ddp", "calls", 9.0),
    Case("calls-7-expert", "expert", "calls", 7.0),
    Case("pipeline-kernel-6", "pipeline", "kernel", 6.0),
    Case("pipeline-python-6", "pipeline", "python", 6.0),
    Case("expert-python-5", "expert", "python", 5.0),
    Case("tensor-kernel", "tensor", "kernel", 14.0),
    Case("tensor-copy-5", "tensor", "copy", 5.0),
    Case("copy-7", "ddp", "copy", 7.0),
    # And the last time, when streams that wait for each other had come to be read from the recording.
    Case("calls-5", "ddp", "calls", 5.0),
    Case("calls-6-expert", "expert", "calls", 6.0),
    Case("calls-8-tensor", "tensor", "calls", 8.0),
    Case("gc-7", "ddp", "gc", 7.0),
    Case("kernel-10", "ddp", "kernel", 10.0),
    Case("kernel-18", "ddp", "kernel", 18.0),
    Case("expert-kernel", "expert", "kernel", 12.0),
    Case("pipeline-python-8", "pipeline", "python", 8.0),
    Case("pipeline-sleep-5", "pipeline", "sleep", 5.0),
    Case("pipeline-copy", "pipeline", "copy", 7.0),
    Case("tensor-python-7", "tensor", "python", 7.0),
    Case("expert-python-6", "expert", "python", 6.0),
    Case("fsdp-python-9", "fsdp", "python", 9.0),
    Case("fsdp-calls", "fsdp", "calls", 7.0),
    Case("loader-7", "ddp", "loader", 7.0),
    Case("copy-8", "ddp", "copy", 8.0),
    # With turns before the recording and after it from here on.
    Case("none-2", "ddp", "none", 0.0),
    Case("calls-7", "ddp", "calls", 7.0),
    Case("calls-5-expert", "expert", "calls", 5.0),
    Case("pipeline-copy-9", "pipeline", "copy", 9.0),
    Case("copy-10", "ddp", "copy", 10.0),
    Case("spin-5", "ddp", "spin", 5.0),
    Case("expert-spin", "expert", "spin", 4.0),
    Case("fsdp-spin", "fsdp", "spin", 8.0),
    Case("pipeline-spin", "pipeline", "spin", 6.0),
    Case("tensor-python-6", "tensor", "python", 6.0),
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
        if not args.unread:
            # Reading takes processors and memory from what is being recorded, so it comes afterwards.
            results = judged_all(results, kept)
    write(results, args, described())


def write(results: list[dict[str, Any]], args: argparse.Namespace, machine: dict[str, Any]) -> None:
    found = summary(results, args) | {"machine": machine}
    args.output.write_text(json.dumps(found, indent=1) + "\n")
    for one in results:
        print(told(one))
    print(json.dumps(found["totals"], indent=1))


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
    """One job, recorded, and what was measured in its turns."""
    result: dict[str, Any] = {**asdict(case), "late": job.late, "right": False}
    begun = time.monotonic()
    try:
        job.finished()
        result |= truth_in(job.folder, args.nproc)
    except (OSError, ValueError, KeyError) as error:
        result["error"] = in_words(error)
    result["seconds"] = round(time.monotonic() - begun, 1)
    return result


def read_again(args: argparse.Namespace) -> None:
    """The results of an earlier run with what is said of its traces now; jobs whose traces were not kept are left out."""
    before = json.loads(args.again.read_text())
    args.device, args.nproc = before["device"], before["nproc"]
    there = [
        (truth_in(args.keep / one["name"], args.nproc) if "error" not in one else {}) | one
        for one in before["jobs"]
        if (args.keep / one["name"] / "traces").is_dir()
    ]
    write(judged_all(there, args.keep), args, before["machine"])


def truth_in(folder: Path, nproc: int) -> dict[str, Any]:
    """What the ranks of a job noted in its folder."""
    return truth_of([json.loads((folder / f"truth-{rank}.json").read_text()) for rank in range(nproc)])


def truth_of(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What the late rank does more, while the recorder times its steps and in turns, and the job's step with that and
    without: the median over the turns, ms."""

    def step(name: str) -> list[float]:
        return [median(turn) for turn in zip(*(one[name] for one in ranks), strict=True)]

    pairs = list(zip(step("with_ms"), step("without_ms"), strict=True))
    plant, in_turns = (max((one.get(name, []) for one in ranks), key=len) for name in ("plant_ms", "in_turns_ms"))
    windows = [
        median(steps[at : at + _ACTIVE])
        for steps in (in_turns, plant[:_TIMED])
        for at in range(max(len(steps) - _ACTIVE, 0) + 1)
        if steps
    ]
    return {
        "true_ms": median(plant[:_TIMED]) if plant else 0.0,
        "true_in_turns_ms": median(in_turns) if in_turns else 0.0,
        "true_range_ms": [min(windows), max(windows)] if windows else [0.0, 0.0],
        # What it took while it was recorded: where recording costs nothing (Python, sleep, a loader), what is to be found.
        "recorded_ms": median(plant[_RECORDED]) if len(plant) > _TIMED else 0.0,
        "with_ms": median(with_ for with_, _ in pairs),
        "without_ms": median(without for _, without in pairs),
        "turns": {
            "with_ms": [round(with_, 3) for with_, _ in pairs],
            "without_ms": [round(without, 3) for _, without in pairs],
            # What each rank's host does by itself, its waits left out.
            "own_with_ms": [[round(each, 3) for each in one["own_with_ms"]] for one in ranks],
            "own_without_ms": [[round(each, 3) for each in one["own_without_ms"]] for one in ranks],
        },
        "after": [[[round(each, 3) for each in both] for both in one["after_ms"]] for one in ranks],
    }


def summary(results: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    planted = [one for one in results if one["plant"] != "none"]
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
            "in turns": errors([one["in_turns"]["off"] for one in planted if "off" in one.get("in_turns", {})]),
            "as recorded": errors([one["off"] for one in planted if "off" in one]),
        },
        "jobs": results,
    }


def errors(offs: list[dict[str, float]]) -> dict[str, Any]:
    """How far off, over jobs, and in how many of them by no more than is the goal."""
    found: dict[str, Any] = {}
    for what, goal in _GOALS.items():
        apart = sorted(abs(one[what]) for one in offs if what in one)
        if apart:
            within = sum(one <= goal for one in apart)
            found[what] = {
                "jobs": len(apart),
                "median": median(apart),
                "worst": apart[-1],
                f"within {goal:.0%}": within,
            }
    return found


def told(one: dict[str, Any]) -> str:
    """One job in a line: what was timed, and by what share what is said is off, in turns and as recorded."""
    verdict = "right" if one["right"] else "WRONG" if "said" in one else "not read"
    line = f"{one['name']}: {verdict} {one.get('said_cause', '')}"
    line += "".join(f" {key} {one[key]:.2f}" for key in _TIMES if key in one)
    for how, each in (("in turns", one.get("in_turns", {})), ("as recorded", one)):
        if "off" in each:
            line += f"; {how}: said {each['said_ms']:.2f} ms"
            line += "".join(f", {what} {share:+.1%}" for what, share in each["off"].items())
            line += f" (spread {each['spread']:.1%})" if "spread" in each else ""
    return f"{line} {one.get('error', '')} ({one['seconds']} s)"


if __name__ == "__main__":
    main()
