"""Figures from measurements: ratios with their intervals, medians of the rest."""

from __future__ import annotations

import statistics
from typing import Any

from lanewise.record.distortion import ratio_interval

__all__ = ["summary"]


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """By job, as `kind program arm count` names it."""
    out: dict[str, Any] = {}
    for name, answers in results.items():
        rows = [row for row in answers if "error" not in row]
        if not rows:
            out[name] = answers[-1]
        elif "before_ns" in rows[0]:
            out[name] = _aba(rows)
        elif "within_ns" in rows[0]:
            out[name] = _turns(rows)
        else:
            out[name] = rows[-1]
        if rows and len(rows) < len(answers):
            out[name]["failed"] = len(answers) - len(rows)
    return out


def _aba(rows: list[dict[str, Any]]) -> dict[str, Any]:
    line: dict[str, Any] = {"processes": len(rows)}
    for name in ("during", "after"):
        for suffix, share in (("", 0.5), ("_fast", 0.25)):
            ratios = [_quantile(row[f"{name}_ns"], share) / _quantile(row["before_ns"], share) for row in rows]
            line[f"{name}{suffix}"] = round(statistics.median(ratios), 4)
            line[f"{name}{suffix}_range"] = [round(min(ratios), 4), round(max(ratios), 4)]
    line["before_ms"] = round(statistics.median(_quantile(row["before_ns"], 0.5) for row in rows) / 1e6, 3)
    for name in ("start_ms", "stop_ms", "bytes", "contexts", "callbacks", "resident_during", "resident_after"):
        if name in rows[0]:
            line[name] = round(statistics.median(row[name] for row in rows), 3)
    return line | {name: rows[-1][name] for name in ("device", "losses", "counts", "linked") if name in rows[-1]}


def _quantile(values: list[int], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def _turns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    within = [ns for row in rows for ns in row["within_ns"]]
    without = [ns for row in rows for ns in row["without_ns"]]
    line: dict[str, Any] = {
        "ratio": round(statistics.median(within) / statistics.median(without), 4),
        "interval": [round(x, 4) for x in ratio_interval(within, without) or ()],
        "median_of_pairs": round(statistics.median(a / b for a, b in zip(within, without, strict=True)), 4),
        "blocks": len(within),
        "without_ms": round(statistics.median(without) / 1e6, 3),
        "processes": len(rows),
    }
    for name in ("on_ns", "off_ns"):
        if rows[0].get(name):
            line[name] = int(statistics.median(ns for row in rows for ns in row[name]))
    return line | {name: rows[-1][name] for name in ("device", "counts", "losses", "callbacks") if name in rows[-1]}
