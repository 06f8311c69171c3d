"""The bad programs with the diff that `lanewise fix --unsafe` makes, against their good twins: step time of all three.

Every program runs in a process of its own under `lanewise run`, bad, fixed and good in turns; times are those without the
profiler. A program is fixed if its step takes at most 10 % longer than the good twin's, or is no slower beyond noise.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.compare.arm import Arm
from lanewise.compare.diff import run_of
from lanewise.compare.run import Run
from lanewise.compare.statistics import estimate
from lanewise.fix.source.rewrite import rewrite
from lanewise.trace.reader import read

BAD = Path(__file__).parents[2] / "examples" / "bad"
WITHIN = 1.10


def measure(runs: int, only: list[str], keep: Callable[[dict[str, Any]], None]) -> None:
    """All of them, or those named; `keep` is given each row as soon as it is there."""
    for path in sorted(BAD.glob("*.py")):
        if not only or path.stem in only:
            keep(_one(path, runs))


def _one(path: Path, runs: int) -> dict[str, Any]:
    edited = rewrite(path.read_text())
    row: dict[str, Any] = {"program": path.stem, "runs": runs, "edits": [one.name for one in edited.suggestions]}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        fixed = home / path.name
        fixed.write_text(edited.after)
        recorded: dict[str, list[Run]] = {"bad": [], "fixed": [], "good": []}
        try:
            for number in range(runs):
                for side, program, words in (("bad", path, []), ("fixed", fixed, []), ("good", path, ["--good"])):
                    recorded[side].append(_run(program, words, home / f"{side}{number}"))
        except RuntimeError as error:
            return row | {"fixed": False, "error": str(error)}
        arms = {side: Arm(side, found) for side, found in recorded.items()}
        rounds = {side: arm.step_rounds(unprofiled=arm.unprofiled) for side, arm in arms.items()}
        against = estimate(rounds["good"], rounds["fixed"], paired=True)
        for side, arm in arms.items():
            row[f"{side}_us"] = round(arm.step_ns / 1e3, 2)
            row[f"{side}_rounds_us"] = [round(float(np.median(samples)) / 1e3, 2) for samples in rounds[side]]
        row["good_over_fixed"] = [round(value, 4) for value in (against.ratio, against.low, against.high)]
        row["bad_over_fixed"] = round(row["bad_us"] / row["fixed_us"], 3)
        row["bad_over_good"] = round(row["bad_us"] / row["good_us"], 3)
        row["fixed"] = row["fixed_us"] <= WITHIN * row["good_us"]
    print(row, file=sys.stderr, flush=True)
    return row


def _run(program: Path, words: list[str], folder: Path) -> Run:
    command = [sys.executable, "-m", "lanewise", "run", "--no-explain", "-q", "-o", str(folder), str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    traces = sorted(folder.glob("*.json.gz"))
    if done.returncode or not traces:
        raise RuntimeError(f"{program.name}: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return run_of(read(str(traces[0]), cache=False))
