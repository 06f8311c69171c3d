"""A program with several faults in this process: timed in turns with one of them mended at a time, then recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.replay.one import BLOCK_S, ROUNDS, Program, in_turns, ratio, record
from benchmarks.replay.pairs import Place, Several

__all__ = ["measure_several"]


def measure_several(
    program: Several, place: Place, traces: Path, *, rounds: int = ROUNDS, block_s: float = BLOCK_S
) -> list[dict[str, Any]]:
    """Time and record it. Returns for each fix what `truth.json` keeps of a pair, with `program` to tell which belong
    together; all have the one recording of the slow program."""
    began = time.monotonic()
    first = program.fixes[0]
    versions = {"slow": Program(first, place, fixed=False)}
    versions |= {fix.name: Program(fix, place, fixed=True) for fix in program.fixes}
    for version in versions.values():
        version.warm_up()
    times = in_turns(versions, rounds, block_s)
    name = f"several-{program.name}-slow"
    recorded = record(versions["slow"], first, place, "shapes", traces / f"{name}.json.gz")
    slow = times["slow"]
    recording = {"name": name, "pair": program.name, "role": "slow", "unprofiled": slow} | recorded
    return [
        {
            "name": fix.name,
            "program": program.name,
            "fix": fix.fix,
            "change": fix.change,
            "codes": list(fix.codes),
            "nothing": fix.nothing,
            "compiled": fix.compiles,
            "slow_us": slow["median_us"],
            "fixed_us": times[fix.name]["median_us"],
            "gain_us": round(slow["median_us"] - times[fix.name]["median_us"], 3),
            "fixed_over_slow": ratio(slow["blocks_us"], times[fix.name]["blocks_us"]),
            "seconds": round(time.monotonic() - began, 2),
            "recordings": [recording],
        }
        for fix in program.fixes
    ]
