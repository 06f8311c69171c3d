"""The bad programs with the diff that `lanewise fix --unsafe` makes, against their good twins: step time of all three.

All three run in one process, in turns (see `benchmarks.fix.twins`), and that several times; nothing is profiled. A program
is fixed if its step takes at most 10 % longer than that of the good twin.
"""

from __future__ import annotations

import json
import math
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
from benchmarks.fix.twins import measure_twins

from lanewise.compare.statistics import estimate
from lanewise.edit.rewrite import rewrite

BAD = Path(__file__).parents[2] / "examples" / "bad"
WITHIN = 1.10
_LONGEST_S, _ROUNDS_S = 60.0, 3.0


def measure(device: str, runs: int, only: list[str], keep: Callable[[dict[str, Any]], None], seconds: float) -> None:
    """All of them, or those named, in `runs` processes each as far as the time goes; `keep` gets each row when it changes.

    `benchmarks.fix.forked.warm_imports` has been called.
    """
    began = time.monotonic()
    # No TemporaryDirectory: a fork that ends would clear it away.
    folder = Path(tempfile.mkdtemp(prefix="lanewise-bad-"))
    try:
        programs = [_Program(path, folder) for path in sorted(BAD.glob("*.py")) if not only or path.stem in only]
        for number in range(runs):
            for program in programs:
                left = seconds - (time.monotonic() - began)
                if left < _ROUNDS_S:
                    print("no time is left for more", file=sys.stderr)
                    return
                program.run(device, number, min(left, _LONGEST_S))
                keep(program.row())
                print(program.row(), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Program:
    """One bad program, its fixed form, and what has been measured of these and the good twin."""

    def __init__(self, path: Path, home: Path) -> None:
        self._path, self._home = path, home
        edited = rewrite(path.read_text())
        self._edits = [one.name for one in edited.suggestions]
        self._fixed = edited.after
        self._found: list[dict[str, Any]] = []
        self._problem = ""

    def run(self, device: str, number: int, seconds: float) -> None:
        """Measure it in one more process."""
        if self._problem:
            return
        output, log = (self._home / f"{self._path.stem}-{number}.{kind}" for kind in ("json", "log"))
        # What a program does on its way out, waiting for a log say, is not measured.
        problem = run_one(
            lambda: measure_twins(self._path, self._fixed, device, output, _ROUNDS_S), log, seconds, at_exit=False
        )
        if not problem:
            self._found.append(json.loads(output.read_text()))
        elif not self._found:
            self._problem = f"{problem}: {log.read_text().strip()[-400:]}"

    def row(self) -> dict[str, Any]:
        """What is known so far."""
        row: dict[str, Any] = {"program": self._path.stem, "runs": len(self._found), "edits": self._edits}
        if self._problem:
            return row | {"fixed": False, "error": self._problem}
        good, fixed = ([np.array([us]) for one in self._found for us in one[side]] for side in ("good", "fixed"))
        against = estimate(good, fixed, paired=True)
        medians = {
            "bad": float(np.median([one["bad"] for one in self._found])),
            "fixed": float(np.median(np.concatenate(fixed))),
            "good": float(np.median(np.concatenate(good))),
        }
        row |= {f"{side}_us": round(us, 2) for side, us in medians.items()}
        row["found"] = self._found
        values = (against.ratio, against.low, against.high)
        row["good_over_fixed"] = [round(value, 4) if math.isfinite(value) else None for value in values]
        row["bad_over_fixed"] = round(medians["bad"] / medians["fixed"], 3)
        row["bad_over_good"] = round(medians["bad"] / medians["good"], 3)
        row["fixed"] = medians["fixed"] <= WITHIN * medians["good"]
        return row


def lanewise_command(words: list[str]) -> None:
    """Run a command of lanewise in this process, from the project's folder."""
    from lanewise.cli.main import main

    os.chdir(BAD.parents[1])
    sys.argv[:] = ["lanewise", *words]
    main()
