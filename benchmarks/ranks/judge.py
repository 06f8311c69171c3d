"""What is said of recorded jobs, and whether it is right and by how much it is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ranks.in_turns import said_in_turns

from lanewise.errors import LanewiseError

__all__ = ["environment", "in_words", "judged_all"]

_SOURCE = Path(__file__).parents[2] / "src"
_LONGEST_S = 180.0
_READERS = 16
# Recording makes these no longer.
AS_LONG = ("sleep", "python", "spin", "loader", "gc")
# What each cause may be called, by the words of `lanewise ranks`.
CAUSES = {
    "sleep": ("Python", "sleep"),
    "python": ("Python",),
    "spin": ("Python",),
    "gc": ("Python", "garbage collection"),
    "kernel": ("more work", "slower kernels", "operators"),
    "copy": ("copies",),
    "loader": ("data loading", "sleep"),
    "calls": ("operators",),
}


def judged_all(results: list[dict[str, Any]], kept: Path) -> list[dict[str, Any]]:
    """The same with what is said of each recording; several are read at a time."""
    context = get_context("spawn")
    with ProcessPoolExecutor(min(_READERS, os.cpu_count() or 1), mp_context=context) as readers:
        return list(readers.map(judged_one, results, [kept] * len(results)))


def judged_one(result: dict[str, Any], kept: Path) -> dict[str, Any]:
    if "error" in result:
        return result
    traces = kept / result["name"] / "traces"
    # What was measured stays.
    measured = {key: value for key, value in result.items() if not key.startswith(("said", "right", "off", "in_turns"))}
    try:
        found = measured | judged(answer_of(traces), result["plant"], result["late"])
        if result["plant"] == "none":
            return found
        left = result["without_ms"] / result["with_ms"]
        if "said_without_ms" in found and found["right_rank"]:
            found["off"] = off(found, result, "true_ms", left)
            if result["plant"] in AS_LONG and not result["stacks"] and result.get("recorded_ms"):
                found["off"]["delay_recorded"] = found["said_ms"] / result["recorded_ms"] - 1
        if said := said_in_turns(traces, result["turns"], result["late"]):
            more = {"off": off(said, result, "true_in_turns_ms", left), "spread": spread(result["turns"])}
            found["in_turns"] = said | more
        return found
    except (subprocess.SubprocessError, LanewiseError, OSError, ValueError, KeyError) as error:
        return measured | {"right": False, "error": in_words(error)}


def off(said: dict[str, Any], true: dict[str, Any], which: str, left: float) -> dict[str, float]:
    """By what share the said step without the late rank is off, and the said delay where the true one is known.

    Args:
        said: of the job. true: what was measured of it, the delay by the name `which`. left: share of the step that is
            left without the plant.
    """
    found = {"step": said["said_without_ms"] / said["said_with_ms"] / left - 1}
    if not true.get(which):
        return found
    found["delay"] = said["said_ms"] / true[which] - 1
    if "true_range_ms" in true:
        least, most = true["true_range_ms"]
        found["delay_beyond"] = said["said_ms"] / min(max(said["said_ms"], least), most) - 1
    return found


def spread(turns: dict[str, Any]) -> float:
    """By what share the timed step without the plant may be off by chance: half of a 95 % interval, from pairs of turns
    that stand beside each other."""
    left = [without / with_ for with_, without in zip(turns["with_ms"], turns["without_ms"], strict=True)]
    apart = 1.48 * median(abs(one - median(left)) for one in left) / median(left)
    # Medians spread by 1.25 times what means do.
    return 1.96 * 1.25 * apart / len(left) ** 0.5


def judged(answer: dict[str, Any], plant: str, late: int) -> dict[str, Any]:
    """What was said, and whether it is right."""
    rows = [row for row in answer["tables"]["ranks"]["rows"] if row["cause"]]
    said = [sentence(block) for block in answer["statements"]["ranks"]]
    found: dict[str, Any] = {"said": said, "said_late": [row["rank"] for row in rows]}
    for block in answer["statements"]["ranks"]:
        values = block.get("values", {})
        if "without" in values:
            found["said_with_ms"] = values["step"]["value"] / 1e6
            found["said_without_ms"] = values["without"]["value"] / 1e6
        elif block["template"].startswith("The job does not wait"):
            found["said_with_ms"] = found["said_without_ms"] = values["step"]["value"] / 1e6
    if plant == "none":
        return found | {"right": not rows}
    mine = [row for row in rows if row["rank"] == str(late)]
    found["said_cause"] = mine[0]["cause"] if mine else ""
    found["said_ms"] = mine[0]["more"] / 1e6 if mine else 0.0
    found["right_rank"] = len(rows) == 1 and bool(mine)
    found["right_cause"] = found["said_cause"] in CAUSES[plant]
    return found | {"right": found["right_rank"] and found["right_cause"]}


def sentence(block: dict[str, Any]) -> str:
    """A sentence with its numbers, as plain text."""
    values = {key: one["value"] for key, one in block.get("values", {}).items()}
    return str(block["template"]).format(**values)


def answer_of(traces: Path) -> dict[str, Any]:
    """What `lanewise ranks` says of the traces of a job."""
    words = ["ranks", str(traces), "--json", "--no-cache", "--no-findings"]
    return json.loads(called([sys.executable, "-m", "lanewise", *words]))


def called(words: list[str]) -> str:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=_LONGEST_S, check=True)
    return done.stdout


def environment() -> dict[str, str]:
    path = f"{_SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def in_words(error: Exception) -> str:
    # The command names places of the machine.
    output = str(getattr(error, "stderr", "") or error)
    return f"{type(error).__name__}: {output.strip().splitlines()[-1:]}"[:1500]
