"""How right the diagnoses are on labelled recordings.

    python -m benchmarks.diagnosis [--out benchmarks/results/diagnosis.json]

Prints one line per recording and the shares; exits with 1 if a target is missed. Nothing is timed and nothing is
random: the same recordings and rules give the same numbers on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.diagnosis.score import Score, Verdict, judge_all, score

from lanewise import __version__

TARGETS = {"recordings": 40, "top_1": 0.9, "false_alarms": 0}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="also write the result as JSON")
    asked = parser.parse_args()
    verdicts = judge_all()
    total = score(verdicts)
    for verdict in verdicts:
        print(_line(verdict))
    print()
    print(_summary(total))
    if asked.out is not None:
        asked.out.write_text(json.dumps(_result(verdicts, total), indent=1) + "\n")
    return 0 if _reached(total) else 1


def _line(verdict: Verdict) -> str:
    fine = verdict.right_first and verdict.right_regime and not verdict.wrong and not verdict.missing
    parts = [f"{'ok ' if fine else 'NO '} {verdict.label.name:30} {verdict.regime:15} {verdict.first or '-':7}"]
    if not verdict.right_first:
        parts.append(f"expected {verdict.label.first or 'silence'}")
    if verdict.wrong:
        parts.append(f"wrong: {' '.join(verdict.wrong)}")
    if verdict.missing:
        parts.append(f"missing: {' '.join(verdict.missing)}")
    if verdict.stated_us is not None and verdict.measured_us is not None:
        parts.append(f"up to {verdict.stated_us:,.0f} us, gave back {verdict.measured_us:,.0f}")
    return "  ".join(parts)


def _summary(total: Score) -> str:
    return "\n".join(
        [
            f"recordings          {total.recordings}",
            f"regime right        {total.regimes} of {total.recordings}",
            f"defect comes first  {total.bad_first} of {total.bad} ({total.top_1:.0%})",
            f"good ones silent    {total.good_silent} of {total.good}",
            f"precision           {total.precision:.1%} of {total.said} findings",
            f"recall              {total.recall:.1%} of {total.demanded} demanded codes",
            f"bound held          {total.bounds_held} of {total.bounds} gave back no more than promised",
        ]
    )


def _reached(total: Score) -> bool:
    return (
        total.recordings >= TARGETS["recordings"]
        and total.top_1 >= TARGETS["top_1"]
        and total.good - total.good_silent <= TARGETS["false_alarms"]
    )


def _result(verdicts: list[Verdict], total: Score) -> dict[str, Any]:
    return {
        "what": "diagnoses on labelled recordings (tests/data/twins; labels in benchmarks/diagnosis/labels.py)",
        "command": "python -m benchmarks.diagnosis --out benchmarks/results/diagnosis.json",
        "recorded_on": "one NVIDIA H100 80GB HBM3, three of them on one NVIDIA H200; torch 2.11.0, CUDA 13.0",
        "version": __version__,
        "targets": TARGETS,
        "total": {**asdict(total), "top_1": total.top_1, "precision": total.precision, "recall": total.recall},
        "recordings": [
            {
                "name": verdict.label.name,
                "regime": verdict.regime,
                "defect": verdict.label.first,
                "said": verdict.said,
                "wrong": verdict.wrong,
                "missing": verdict.missing,
                "stated_us": verdict.stated_us,
                "measured_us": verdict.measured_us,
            }
            for verdict in verdicts
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
