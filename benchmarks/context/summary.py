"""Figures from measurements: ratios of medians with 95 % intervals, whole rounds resampled."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["summary"]

_RESAMPLES = 4000
_EVERY = 50

Answers = Sequence[dict[str, Any]]


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """By the name of the measurement; those of arms by arm and program."""
    out: dict[str, Any] = {}
    for name, answers in results.items():
        rows = [row for row in answers if "error" not in row]
        kind = name.split(" ")[0]
        if not rows:
            out[name] = answers[-1]
        elif kind in _KINDS:
            out[name] = _KINDS[kind](rows)
        else:
            out[name] = rows[-1]
    return out


def _in_rounds(values: Sequence[float], size: int) -> np.ndarray:
    """Samples of one round in one row; an unfinished round is left out."""
    whole = len(values) // size * size
    return np.array(values[:whole], dtype=float).reshape(-1, size)


def _drawn(rounds: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, rounds, (_RESAMPLES, rounds))


def _median_of(rounds: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The median of all samples of the drawn rounds."""
    return np.median(rounds[drawn].reshape(len(drawn), -1), axis=1)


def _interval(values: np.ndarray, digits: int = 4) -> list[float]:
    return [round(float(value), digits) for value in np.percentile(values, [2.5, 97.5])]


def _pairs(rows: Answers) -> dict[str, Any]:
    line: dict[str, Any] = {}
    for key, suffix in (("", ""), ("cpu_", "_cpu")):
        within, without = (np.concatenate([_in_rounds(row[f"{side}_{key}ns"], 2) for row in rows]) for side in _SIDES)
        # Of each round the ratio of its sums: what drifts from round to round is on both sides.
        ratios = within.sum(axis=1) / without.sum(axis=1)
        drawn = _drawn(len(ratios))
        line[f"ratio{suffix}"] = round(float(np.median(ratios)), 4)
        line[f"interval{suffix}"] = _interval(np.median(ratios[drawn], axis=1))
        line[f"ratio_of_medians{suffix}"] = round(float(np.median(within) / np.median(without)), 4)
        line[f"interval_of_medians{suffix}"] = _interval(_median_of(within, drawn) / _median_of(without, drawn))
        line[f"without{suffix}_ms"] = round(float(np.median(without)) / 1e6, 3)
        line["rounds"] = len(ratios)
    switches = np.concatenate([_in_rounds(row["switch_ns"], 4) for row in rows])
    line["on_us"], line["off_us"] = (round(float(np.median(switches[:, at])) / 1e3, 1) for at in (1, 3))
    line["stop_ms"] = round(statistics.median(row["stop_ns"] for row in rows) / 1e6, 1)
    return line | {name: rows[-1][name] for name in ("device", "callbacks", "callback_ns", "counts", "losses")}


def _turns(rows: Answers) -> dict[str, Any]:
    """What a watched step adds, beside the time of fifty plain ones."""
    period = rows[0]["period"]
    within, without = (np.concatenate([_in_rounds(row[f"{side}_ns"], 2) for row in rows]) for side in _SIDES)
    drawn = _drawn(len(within))
    steps = _median_of(without, drawn) / period
    step = float(np.median(without)) / period
    more = (within - without).sum(axis=1) / 2
    return {
        "one_in": _EVERY,
        "ratio": round(1 + float(np.median(more)) / (_EVERY * step), 5),
        "interval": _interval(1 + np.median(more[drawn], axis=1) / (_EVERY * steps), 5),
        "ratio_of_means": round(1 + float(np.mean(more)) / (_EVERY * step), 5),
        "interval_of_means": _interval(1 + np.mean(more[drawn], axis=1) / (_EVERY * steps), 5),
        "rounds": len(more),
        "step_ms": round(step / 1e6, 4),
        "watched_step_adds_us": round(float(np.median(more)) / 1e3, 1),
    }


_SIDES = ("within", "without")


def _arms(rows: Answers) -> dict[str, Any]:
    """Of each arm and program: how far it is from nothing attached, while it is on and afterwards, as before it was."""
    out: dict[str, Any] = {"lost": rows[-1]["lost"]}
    for program in ("llama", "adds", "wide"):
        for arm in dict.fromkeys(rows[-1]["arms"].values()):
            line: dict[str, Any] = {"rounds": [_rounds_of(rows, program, phase) for phase in _PHASES]}
            for phase in ("during", "after"):
                found = [change for row in rows for change in _changes(row, arm, program, phase)]
                if found:
                    line[phase] = round(float(np.exp(np.mean([one for one, _ in found]))), 4)
                    line[f"{phase}_interval"] = _interval(np.exp(np.mean([drawn for _, drawn in found], axis=0)))
            out[f"{program} {arm}"] = line
    return out


_PHASES = ("before", "during", "after")


def _rounds_of(rows: Answers, program: str, phase: str) -> int:
    return sum(program in next(iter(one.values())) for row in rows for one in row[phase])


def _changes(row: dict[str, Any], arm: str, program: str, phase: str) -> list[tuple[float, np.ndarray]]:
    """Of each process: logarithm of its step over one with nothing attached, now less before; and the same resampled."""
    found: list[tuple[float, np.ndarray]] = []
    names = [name for name, one in row["arms"].items() if one == arm]
    # Of two with nothing attached, either one is the other's mirror.
    for name in names[:1] if arm == "null" else names:
        sides = [_beside_null(row, at, name, program) for at in (phase, "before")]
        if min(map(len, sides)) < 4:
            continue
        drawn = [np.median(side[_drawn(len(side))], axis=1) for side in sides]
        found.append((float(np.median(sides[0]) - np.median(sides[1])), drawn[0] - drawn[1]))
    return found


def _beside_null(row: dict[str, Any], phase: str, name: str, program: str) -> np.ndarray:
    """Of each round: logarithm of the process's time over that of the others that have nothing attached."""
    found: list[float] = []
    for one in row[phase]:
        times = {name: by_program.get(program) for name, by_program in one.items()}
        others = [
            times[null] for null, arm in row["arms"].items() if arm == "null" and times.get(null) and null != name
        ]
        if times.get(name) and others:
            logs = [float(np.log(np.mean(other))) for other in others]
            found.append(float(np.log(np.mean(times[name]))) - float(np.mean(logs)))
    return np.array(found)


def _windows(rows: Answers) -> dict[str, Any]:
    """Device time of each kernel: a watch beside torch's profiler, and beside another watch."""
    tables: dict[str, list[dict[str, list[int]]]] = {name: [] for name in ("watch a", "watch b", "trace")}
    for row in rows:
        for one in row["rounds"]:
            for name, table in tables.items():
                table.append({kernel: both for kernel, both in zip(row["names"], one[name], strict=True) if both[0]})
    rounds = tables["trace"]
    out: dict[str, Any] = {"windows": len(rounds)}
    counts = {name: {kernel: row[0] for kernel, row in table[0].items()} for name, table in tables.items()}
    out["kernels_in_a_window"] = sum(counts["trace"].values())
    out["windows_with_other_counts"] = {
        name: sum({kernel: row[0] for kernel, row in one.items()} != counts["trace"] for one in table)
        for name, table in tables.items()
    }
    for label, other in (("beside_trace", "trace"), ("beside_watch", "watch b")):
        whole = sum(row[1] for one in tables[other] for row in one.values())
        total = _ratio(tables, "watch a", other, None)
        lines: dict[str, Any] = {}
        for kernel in counts[other]:
            share = sum(one.get(kernel, [0, 0])[1] for one in tables[other]) / whole
            if share >= 0.01:
                lines[kernel] = {"share": round(share, 4)} | _ratio(tables, "watch a", other, kernel)
        ratios = [line["ratio"] for line in lines.values()]
        out[label] = {"total": total, "range": [min(ratios), max(ratios)], "kernels": lines}
    # The mean of two watches, at either side of the trace as chance has it, is nearer to it in time than one is.
    both = [_sum(rows, kernel=None) for rows in (tables["watch a"], tables["watch b"])]
    out["both_beside_trace"] = _of_rounds((both[0] + both[1]) / 2, _sum(tables["trace"], kernel=None))
    return out


def _ratio(tables: dict[str, list[Any]], ours: str, theirs: str, kernel: str | None) -> dict[str, Any]:
    return _of_rounds(*(_sum(tables[side], kernel=kernel) for side in (ours, theirs)))


def _sum(rows: list[Any], *, kernel: str | None) -> np.ndarray:
    """Of each window, the time of one kernel or of all."""
    return np.array([sum(row[1] for name, row in one.items() if kernel in (None, name)) for one in rows], dtype=float)


def _of_rounds(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """The median of the ratios of windows that were neighbours."""
    ratios = ours / theirs
    drawn = np.median(ratios[_drawn(len(ratios))], axis=1)
    return {"ratio": round(float(np.median(ratios)), 4), "interval": _interval(drawn)}


_KINDS = {"pairs": _pairs, "turns": _turns, "arms": _arms, "windows": _windows}
