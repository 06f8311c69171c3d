"""False alarms: two recordings of the same program, each in a process of its own, must differ in nothing.

A pair is an alarm if the comparison reports other work, or a time as faster or slower (the step's or an op's).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.experiments.waiting import Pool

from lanewise.compare.diff import diff

PROGRAMS = ("mlp", "attention", "train")

_ONE = str(Path(__file__).with_name("record_one.py"))


def record(pool: Pool, program: str, folder: Path) -> None:
    """One recording in a fresh process."""
    answer = pool.take(_ONE).give({"program": program, "out": str(folder)}, seconds=120)
    if "error" in answer:
        raise SystemExit(f"{program}: {answer['error']} {' '.join(answer.get('output', []))}")


def measure(pairs: int, keep: Path | None = None) -> dict[str, Any]:
    """Record and compare `pairs` pairs, the programs in turn.

    Args:
        keep: folder of the recordings; pairs that it holds already are compared again and not recorded.
    """
    found: list[dict[str, Any]] = []
    # Where there are cores to spare, the next process starts beside this one.
    ahead = 4 if (os.cpu_count() or 1) >= 8 else 0
    with tempfile.TemporaryDirectory() as temporary, Pool(ahead) as pool:
        for pair in range(pairs):
            program = PROGRAMS[pair % len(PROGRAMS)]
            folder = (keep or Path(temporary)) / f"{pair:02}"
            folder.mkdir(parents=True, exist_ok=True)
            while len(held := sorted(folder.glob("*.json.gz"))) < 2:
                record(pool, program, folder)
            a, b = held
            difference = diff(a, b, labels=["first", "second"]).differences[0]
            timed = [c for c in difference.device if c.ratio is not None and c.ratio.verdict in {"faster", "slower"}]
            found.append(
                {
                    "program": program,
                    "alarm": difference.changed,
                    "step": difference.step.verdict,
                    "step_ratio": difference.step.ratio,
                    "ops_with_another_time": [c.b[0].name[:60] for c in timed],
                    "other_work": sorted({c.how for c in difference.device} - {"same", "name"}),
                    "ops": dict(Counter(c.ratio.verdict for c in difference.device if c.ratio is not None)),
                }
            )
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    quiet = sum(not pair["alarm"] for pair in found)
    return {
        "pairs": pairs,
        "without_alarm": quiet,
        "step_verdicts": dict(Counter(p["step"] for p in found)),
        "each": found,
    }
