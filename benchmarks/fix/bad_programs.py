"""The bad programs with the diff that `lanewise fix --unsafe` makes, against their good twins: step time of all three.

Every program runs in a process of its own under `lanewise run`, in rounds: fixed and good in turns, the bad one once, in
the first. Times are those without the profiler. A program is fixed if its step takes at most 10 % longer than that of the
good twin.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.fix.forked import run_one

from lanewise.compare.arm import Arm
from lanewise.compare.diff import run_of
from lanewise.compare.run import Run
from lanewise.compare.statistics import estimate
from lanewise.fix.source.rewrite import rewrite
from lanewise.trace.reader import read

BAD = Path(__file__).parents[2] / "examples" / "bad"
WITHIN = 1.10
_LONGEST_S = 60.0


def measure(runs: int, only: list[str], keep: Callable[[dict[str, Any]], None], seconds: float) -> None:
    """All of them, or those named, in `runs` rounds as far as the time goes; `keep` is given each row when it changes.

    `benchmarks.fix.forked.warm_imports` has been called.
    """
    began = time.monotonic()
    # No TemporaryDirectory: a fork that ends would clear it away.
    folder = Path(tempfile.mkdtemp(prefix="lanewise-bad-"))
    try:
        programs = [_Program(path, folder) for path in sorted(BAD.glob("*.py")) if not only or path.stem in only]
        for number in range(runs):
            for program in programs:
                if time.monotonic() - began > seconds:
                    print("no time is left for more rounds", file=sys.stderr)
                    return
                program.round(number)
                keep(program.row())
                print(program.row(), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Program:
    """One bad program, its fixed form, and what has been recorded of these and the good twin."""

    def __init__(self, path: Path, home: Path) -> None:
        self._path, self._home = path, home
        edited = rewrite(path.read_text())
        self._edits = [one.name for one in edited.suggestions]
        self._fixed = home / path.name
        self._fixed.write_text(edited.after)
        self._recorded: dict[str, list[Run]] = {"bad": [], "fixed": [], "good": []}
        self._problem = ""

    def round(self, number: int) -> None:
        """Record the fixed and the good one, in turns; in the first round also the bad one."""
        sides = [("fixed", self._fixed, []), ("good", self._path, ["--good"])]
        sides = [("bad", self._path, []), *sides] if number == 0 else sides[:: 1 if number % 2 else -1]
        for side, program, words in sides:
            if not self._problem:
                self._record(side, program, words, f"{self._path.stem}-{side}{number}")

    def _record(self, side: str, program: Path, words: list[str], name: str) -> None:
        folder, log = self._home / name, self._home / f"{name}.log"
        # The bad one may take seconds per step, and it is only told, not judged.
        quick = ["--quick"] if side == "bad" else []
        command = ["run", "--no-explain", "-q", "--stop", *quick, "-o", str(folder), str(program), *words]
        problem = run_one(lambda: lanewise_command(command), log, _LONGEST_S)
        traces = sorted(folder.glob("*.json.gz"))
        if problem or not traces:
            self._problem = f"{side}: {problem or 'nothing was recorded'}: {log.read_text().strip()[-300:]}"
            return
        self._recorded[side].append(run_of(read(str(traces[0]), cache=False)))

    def row(self) -> dict[str, Any]:
        """What is known so far."""
        row: dict[str, Any] = {"program": self._path.stem, "runs": len(self._recorded["good"]), "edits": self._edits}
        if self._problem:
            return row | {"fixed": False, "error": self._problem}
        arms = {side: Arm(side, found) for side, found in self._recorded.items()}
        rounds = {side: arm.step_rounds(unprofiled=arm.unprofiled) for side, arm in arms.items()}
        against = estimate(rounds["good"], rounds["fixed"], paired=True)
        for side, arm in arms.items():
            row[f"{side}_us"] = round(arm.step_ns / 1e3, 2)
            row[f"{side}_rounds_us"] = [round(float(np.median(samples)) / 1e3, 2) for samples in rounds[side]]
        row["good_over_fixed"] = [round(value, 4) for value in (against.ratio, against.low, against.high)]
        row["bad_over_fixed"] = round(row["bad_us"] / row["fixed_us"], 3)
        row["bad_over_good"] = round(row["bad_us"] / row["good_us"], 3)
        row["fixed"] = row["fixed_us"] <= WITHIN * row["good_us"]
        return row


def lanewise_command(words: list[str]) -> None:
    """Run a command of lanewise in this process, from the project's folder."""
    from lanewise.cli.main import main

    os.chdir(BAD.parents[1])
    sys.argv[:] = ["lanewise", *words]
    main()
