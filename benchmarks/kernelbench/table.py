"""What a run over the problems says: shares, losses and what was not run, as data and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SPEEDS", "markdown", "totals"]

SPEEDS = (1.0, 1.2, 1.5, 2.0)
"""The published shares: of problems that are right and faster by more than this."""
_LOST = 0.98

Rows = Mapping[str, Mapping[str, Any]]


def totals(problems: Rows) -> dict[str, Any]:
    """By level and in all: how many, how many wrong, shares by speed against eager and against the best compiler mode."""
    levels = sorted({name.split("/")[0] for name in problems})
    found = {
        f"level {level}": _of({n: one for n, one in problems.items() if n.startswith(f"{level}/")}) for level in levels
    }
    return found if len(levels) < 2 else {**found, "all": _of(problems)}


def _of(problems: Rows) -> dict[str, Any]:
    ran = [one for one in problems.values() if "against_eager" in one]
    right = [one for one in ran if one["right"]]
    eager = [one["against_eager"] for one in right]
    best = [one["against_best"] for one in right if one["against_best"] is not None]
    return {
        "problems": len(problems),
        "failed": len(problems) - len(ran),
        "wrong results accepted": len(ran) - len(right),
        "own check fooled": sum(bool(one["fooled_by"]) for one in ran),
        "share faster than eager by": {f"{speed}x": _share(eager, speed, len(problems)) for speed in SPEEDS},
        "share faster than the best mode by": {f"{speed}x": _share(best, speed, len(problems)) for speed in SPEEDS},
        "geometric mean against eager": _mean(eager),
        "geometric mean against the best mode": _mean(best),
        f"below {_LOST} of the best mode": sorted(
            name for name, one in problems.items() if (one.get("against_best") or 1.0) < _LOST
        ),
        "seconds": round(sum(one["seconds"] for one in ran), 1),
    }


def _share(ratios: Sequence[float], speed: float, of: int) -> float:
    return round(sum(one > speed for one in ratios) / of, 3) if of else 0.0


def _mean(ratios: Sequence[float]) -> float | None:
    return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3) if ratios else None


def markdown(result: Mapping[str, Any]) -> str:
    """The totals, then every problem with what was kept, what it is held against, and why it lost or failed."""
    lines = ["| | problems | " + " | ".join(f"over {speed}x" for speed in SPEEDS) + " | wrong | fooled | failed |"]
    lines.append("|---|---:|" + "---:|" * (len(SPEEDS) + 3))
    for level, one in result["totals"].items():
        shares = " | ".join(f"{share:.1%}" for share in one["share faster than eager by"].values())
        counts = (one["wrong results accepted"], one["own check fooled"], one["failed"])
        lines.append(f"| {level} | {one['problems']} | {shares} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "| problem | kept | against eager | against the best mode | |", "|---|---|---:|---:|---|"]
    for name, one in result["problems"].items():
        if "against_eager" not in one:
            lines.append(f"| {name} | | | | {one.get('failed', '')} |")
            continue
        best = "" if one["against_best"] is None else f"{one['against_best']:.2f} ({one['best_mode']})"
        notes = [*(f"its check passes {what}" for what in one["fooled_by"]), *([] if one["right"] else ["WRONG"])]
        kept = " + ".join(one["plan"]) or "nothing"
        lines.append(f"| {name} | {kept} | {one['against_eager']:.2f} | {best} | {'; '.join(notes)} |")
    return "\n".join(lines) + "\n"
