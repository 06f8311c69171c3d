"""How right the diagnoses are, for docs/diagnoses/index.md: from benchmarks/results/diagnosis.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "diagnosis.json"


def accuracy_section() -> str:
    """The section, as Markdown."""
    result = json.loads(RESULTS.read_text())
    total: dict[str, Any] = result["total"]
    bad = [row for row in result["recordings"] if row["defect"]]
    late = [row for row in bad if not row["said"] or row["said"][0] not in row["defect"].split()]
    over = [row for row in bad if row["stated_us"] and row["measured_us"] > 1.15 * row["stated_us"]]
    lines = [
        "## How right they are",
        "",
        f"`make bench-diagnosis` explains {total['recordings']} recordings ({result['recorded_on']}; `tests/data/twins`) "
        "and compares each report with its label (`benchmarks/diagnosis/labels.py`): programs with one planted defect, "
        "the same programs without it, and the programs of [the experiments](../appendix/experiments.md). The labels were "
        "written by the authors of the rules, with the reports in view: they guard what is right today and are no blind "
        "test. Only the three of the H200 were labelled before they were read: their defects came first, one finding of "
        "five was wrong (fixed since), and one bound was half of what the fixed program saved (fixed in part).",
        "",
        "| | |",
        "|---|---|",
        f"| regime right | {total['regimes']} of {total['recordings']} |",
        f"| the defect is the first finding | {total['bad_first']} of {total['bad']} |",
        f"| programs without a defect left in peace | {total['good_silent']} of {total['good']} |",
        f"| findings that are right | {total['said'] - total['said_wrong']} of {total['said']} |",
        f"| what had to be said was said | {total['demanded'] - total['demanded_missing']} of {total['demanded']} |",
        f"| the fixed program gave back no more than the stated bound (or 15 % more: noise) | {total['bounds_held']} of "
        f"{total['bounds']} |",
        "",
        f"Not first: {_told(late, _behind)}. Gave back more than was stated: {_told(over, _gain)}.",
    ]
    return "\n".join(lines) + "\n"


def _behind(row: dict[str, Any]) -> str:
    return f"{row['defect']} in `{row['name']}`, behind {row['said'][0] if row['said'] else 'nothing'}"


def _gain(row: dict[str, Any]) -> str:
    return f"`{row['name']}` ({row['measured_us']:,.0f} us, stated {row['stated_us']:,.0f})"


def _told(rows: list[dict[str, Any]], say: Any) -> str:
    return "; ".join(say(row) for row in rows) or "none"
