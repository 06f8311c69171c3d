"""Records every program of the experiments, one fresh process each, and checks the recorder's distortion by hand.

    python3 -m benchmarks.experiments.run --out OUT --budget 480

Needs torch, and Triton for part of it; not lanewise's own dependencies. Writes into OUT as it goes: `summary.json` (all
results, rewritten after each program), `traces-N.tar` (the recorded traces), `clocks.csv` and `log.txt`. A program that
fails or takes too long is noted and the next one runs; when the budget is spent the rest is noted as not run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.experiments import distortion
from benchmarks.experiments.clocks import ClockLog
from benchmarks.experiments.one import record
from benchmarks.experiments.programs import ENTRIES, Entry
from benchmarks.fresh import call

HERE = Path(__file__).resolve().parent
TAR_BYTES = 14 << 20
ALL_TRACES_BYTES = 40 << 20


class Traces:
    """Tar files of bounded size."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._number = 1
        self._total = 0

    def add(self, path: Path) -> str:
        """Name of the tar file that took the trace, or why none did."""
        size = path.stat().st_size
        if self._total + size > ALL_TRACES_BYTES or size > TAR_BYTES:
            return "left out: over the size limit"
        tar = self._out / f"traces-{self._number}.tar"
        if tar.exists() and tar.stat().st_size + size > TAR_BYTES:
            self._number += 1
            tar = self._out / f"traces-{self._number}.tar"
        with tarfile.open(tar, "a") as archive:
            archive.add(path, arcname=path.name)
        self._total += size
        path.unlink()
        return tar.name


class Experiments:
    """One run of everything."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out = Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="experiments-"))
        self._log_file = (self.out / "log.txt").open("w", encoding="utf-8")
        self.clocks = ClockLog(self.out / "clocks.csv")
        self.traces = Traces(self.out)
        self.end = time.monotonic() + args.budget
        self.summary: dict[str, Any] = {
            "schema": 1,
            "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": ["python3", "-m", "benchmarks.experiments.run", *sys.argv[1:]],
            "programs": {},
            "distortion": {},
            "timers": {},
        }

    def log(self, text: str) -> None:
        """To the log file and to standard error."""
        print(text, file=self._log_file, flush=True)
        print(text, file=sys.stderr, flush=True)

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.end - time.monotonic()

    def save(self) -> None:
        """The summary as it is now."""
        part = self.out / "summary.json.part"
        part.write_text(json.dumps(self.summary, indent=1), encoding="utf-8")
        os.replace(part, self.out / "summary.json")

    def record(self, entry: Entry) -> None:
        """One program in a fresh process."""
        arguments = entry.small if self.args.device == "cpu" else entry.arguments
        if arguments is None:
            self.summary["programs"][entry.name] = {"error": "not on the CPU"}
            return
        if self.left < entry.seconds:
            self.summary["programs"][entry.name] = {"error": "not run: the time budget is spent"}
            return
        order = {
            "name": entry.name,
            "script": entry.script,
            "arguments": [*arguments.split(), *(["--device", "cpu"] if self.args.device == "cpu" else [])],
            "plan": entry.plan,
            "flags": entry.flags,
            "step_on": entry.step_on,
            "out": str(self.work),
            "device": self.args.device,
        }

        def work() -> dict[str, Any]:
            if self.args.device == "cpu":
                # Threads that wait for each other on a busy machine measure the machine.
                torch.set_num_threads(1)
            return record(order)

        printed = self.work / "printed"
        begun = time.time()
        result = call(work, seconds=max(5.0, min(self.left, 5 * entry.seconds + 20)), output=printed)
        ended = time.time()
        self.log("\n".join(f"    {line}" for line in printed.read_text(errors="replace").splitlines()))
        trace = result.get("trace")
        if trace:
            result["in"] = self.traces.add(self.work / trace)
        result.update(experiment=entry.experiment, clocks=self.clocks.between(begun, ended), wall=ended - begun)
        self.summary["programs"][entry.name] = result
        self.save()
        recorded = result.get("recorded") or {}
        self.log(
            f"{entry.name}: {ended - begun:.1f} s, unprofiled {recorded.get('unprofiled_step_us')} us, "
            f"distortion {recorded.get('distortion')}, {result.get('trace_bytes', 0) / 1e6:.2f} MB"
            f"{' ERROR ' + result['error'] if 'error' in result else ''}"
        )

    def distortion(self, program: str, rounds: int) -> None:
        """By hand and by the recorder: see `distortion.py`."""
        if self.left < 15:
            self.summary["distortion"][program] = {"error": "not run: the time budget is spent"}
            return
        try:
            verdict = distortion.measure(program, self.args.device, rounds, seconds=self.left - 10)
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            verdict = {"error": repr(error)[:500]}
        self.log(f"distortion {program}: { {k: v for k, v in verdict.items() if k != 'samples'} }")
        self.summary["distortion"][program] = verdict
        self.save()

    def timers(self) -> None:
        """E15 to E17 with timers instead of a profiler."""
        if self.args.device == "cpu" or self.left < 60:
            self.summary["timers"] = {"error": "not run: no GPU, or the time budget is spent"}
            return
        target = self.work / "timers.json"
        words = [
            sys.executable,
            str(HERE / "timers.py"),
            "--out",
            str(target),
            "--budget",
            str(min(75, self.left - 20)),
        ]
        begun = time.time()
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            self.log(done.stderr[-3000:])
        except subprocess.TimeoutExpired:
            self.log("timers: out of time")
        if target.exists():
            found = json.loads(target.read_text(encoding="utf-8"))
            self.summary["timers"] = {**found, "clocks": self.clocks.between(begun, time.time())}
        self.save()

    def all(self) -> None:
        """Everything, in the order of importance."""
        chosen = [e for e in ENTRIES if not self.args.only or any(word in e.name for word in self.args.only)]
        first = [e for e in chosen if e.experiment != "bad" and "7b" not in e.name]
        rest = [e for e in chosen if e not in first]
        for entry in first:
            self.record(entry)
        if not self.args.only or "distortion" in self.args.only:
            for program in distortion.PROGRAMS:
                self.distortion(program, self.args.rounds)
        if not self.args.only or "timers" in self.args.only:
            self.timers()
        for entry in rest:
            self.record(entry)

    def close(self) -> None:
        """Write what there is."""
        self.clocks.close()
        self.summary["seconds"] = round(self.args.budget - self.left, 1)
        self.save()
        failed = [name for name, result in self.summary["programs"].items() if "error" in result]
        self.log(f"{len(self.summary['programs'])} programs, without result: {', '.join(failed) or 'none'}")
        shutil.rmtree(self.work, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=float, default=480.0, help="seconds for everything")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rounds", type=int, default=7, help="of the distortion check")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    args = parser.parse_args()
    experiments = Experiments(args)
    try:
        experiments.all()
    finally:
        experiments.close()


if __name__ == "__main__":
    main()
