"""What proofs predicted beside what they measured: every fix that is tried tests the replay.

    python -m benchmarks.replay.proofs run --out FOLDER [PROGRAM.py ...] [--runs 4]
    python -m benchmarks.replay.proofs table FILE_OR_FOLDER ... [--out RESULT.json] [--into PAGE]

`run` proves the edits of programs (`examples/bad` by default) on this machine, on its GPU if it has one, and keeps for
each what `lanewise fix --prove --json` prints. `table` reads such files, and plans of `lanewise.optimize` that were given a
report, and writes the table; `--into` puts it between the two marks of a document, such as the README.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lanewise.report.quantity import format_quantity

BAD = Path(__file__).parents[2] / "examples" / "bad"
BEGIN, END = "<!-- proofs: begin -->", "<!-- proofs: end -->"
_LONGEST_S = 1200


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("programs", type=Path, nargs="*")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--runs", type=int, default=4)
    shown = verbs.add_parser("table")
    shown.add_argument("files", type=Path, nargs="+")
    shown.add_argument("--out", type=Path, default=None)
    shown.add_argument("--into", type=Path, default=None)
    asked = parser.parse_args(words)
    if asked.verb == "run":
        prove_all(asked.programs or sorted(BAD.glob("*.py")), asked.out, asked.runs)
        return 0
    kept = {path.stem: json.loads(path.read_text()) for path in _files(asked.files)}
    rows = [row for name, data in kept.items() for row in rows_of(name, data)]
    result = {
        "what": "steps predicted of a fix beside those measured with it",
        "machines": sorted({where for data in kept.values() if (where := _machine(data))}),
        "summary": summary(rows),
        "rows": rows,
    }
    text = table(rows)
    print(text)
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    if asked.into is not None:
        asked.into.write_text(put_into(asked.into.read_text(), text))
    return 0


def prove_all(programs: Iterable[Path], folder: Path, runs: int) -> None:
    """Prove the edits of each program; what fails is said and left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        kept = folder / f"{program.stem}.json"
        ours = [sys.executable, "-m", "lanewise", "fix", "--prove", "--unsafe", "--runs", str(runs), "--json"]
        done = subprocess.run(
            [*ours, "-o", str(kept), "--force", str(program)],
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        last = (done.stderr.strip().splitlines() or [""])[-1]
        print(
            f"{program.stem}: {'kept' if kept.exists() else 'nothing kept'} ({last[:160]})", file=sys.stderr, flush=True
        )


def _machine(data: Any) -> str:
    """Where a proof of `lanewise fix` was made, and with what; "" where it does not say."""
    base = (data.get("comparison") or {}).get("base") if isinstance(data, dict) else None
    there = (base or {}).get("environment", {})
    names = ("card", "clocks.driver", "versions.torch", "versions.python", "host.processor", "git.revision")
    return ", ".join(str(there[name]) for name in names if there.get(name))


def rows_of(name: str, data: Any) -> list[dict[str, Any]]:
    """What one file says: a proof of `lanewise fix`, several of them, or a plan."""
    if isinstance(data, list):
        return [row for one in data for row in rows_of(name, one)]
    if data.get("schema") == "lanewise.plan/1":
        return [_of_attempt(data["subject"], one) for one in data["attempts"] if one["timing"] is not None]
    comparison = data.get("comparison")
    if comparison is None:
        return []
    predicted = data.get("predicted")
    mended = [one["change"] for one in predicted["changes"]] if predicted else []
    # An edit that answers nothing of what was found is not part of the prediction, and so there is none of the whole.
    whole = all(set(one.get("answers", ())) & set(mended) for one in data["suggestions"])
    after = predicted["predicted"] if predicted and whole else None
    return [
        {
            "program": name,
            "fix": " + ".join(dict.fromkeys(one["name"] for one in data["suggestions"])),
            "mended": mended,
            "before_us": round(comparison["base"]["step_ns"] / 1e3, 3),
            "predicted_us": after["step_us"] if after else None,
            "low_us": after["low_us"] if after else None,
            "high_us": after["high_us"] if after else None,
            "measured_us": round(comparison["others"][0]["step_ns"] / 1e3, 3),
            "verdict": comparison["differences"][0]["step"]["verdict"],
        }
    ]


def _of_attempt(subject: str, attempt: dict[str, Any]) -> dict[str, Any]:
    timing, ratio = attempt["timing"], attempt.get("predicted", 0.0)
    return {
        "program": subject,
        "fix": attempt["name"],
        "mended": [],
        "before_us": timing["before_us"],
        "predicted_us": round(timing["before_us"] / ratio, 3) if ratio else None,
        "low_us": None,
        "high_us": None,
        "measured_us": timing["after_us"],
        "verdict": timing["verdict"],
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How far predictions are from what was measured."""
    errors = [abs(row["predicted_us"] / row["measured_us"] - 1) for row in rows if row["predicted_us"]]
    gains = [
        (row["before_us"] - row["predicted_us"]) / (row["before_us"] - row["measured_us"])
        for row in rows
        if row["predicted_us"] and row["measured_us"] < 0.95 * row["before_us"]
    ]
    held = [row["low_us"] <= row["measured_us"] <= row["high_us"] for row in rows if row["low_us"] is not None]
    return {
        "proofs": len(rows),
        "predicted": len(errors),
        "median_error": round(median(errors), 4) if errors else None,
        "within_15_percent": round(sum(error <= 0.15 for error in errors) / len(errors), 4) if errors else None,
        "median_gain_over_measured": round(median(gains), 4) if gains else None,
        "interval_holds": round(sum(held) / len(held), 4) if held else None,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a sentence, and a row for each proof, those with a prediction first."""
    told = summary(rows)
    lines = [f"{told['proofs']} proofs, {told['predicted']} of them predicted"]
    if told["median_error"] is not None:
        lines[0] += f": off by {told['median_error']:.1%} in the median, within 15 % in {told['within_15_percent']:.0%}"
    if told["median_gain_over_measured"] is not None:
        lines[0] += f"; the gain predicted is {told['median_gain_over_measured']:.2f} of the one measured in the median"
    lines[0] += "."
    lines += [
        "",
        "| program | fix | before | predicted | measured | predicted / measured |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["predicted_us"] is None, row["program"])):
        lines.append(f"| {row['program']} | {_fix(row)} | {_time(row['before_us'])} | {_predicted(row)} |")
    return "\n".join(lines)


def _fix(row: dict[str, Any]) -> str:
    return f"{row['fix']} ({', '.join(row['mended'])})" if row["mended"] else row["fix"]


def _predicted(row: dict[str, Any]) -> str:
    measured = _time(row["measured_us"])
    if row["predicted_us"] is None:
        return f"– | {measured} | –"
    between = f" ({_time(row['low_us'])} to {_time(row['high_us'])})" if row["low_us"] is not None else ""
    return f"{_time(row['predicted_us'])}{between} | {measured} | {row['predicted_us'] / row['measured_us']:.2f}"


def _time(us: float) -> str:
    return format_quantity("time", us * 1e3)


def put_into(document: str, text: str) -> str:
    """The document with the text between its marks. Raises SystemExit where it has none."""
    if BEGIN not in document or END not in document:
        raise SystemExit(f"the document has no place for the table: put {BEGIN} and {END} around it")
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{text}\n{END}", document, flags=re.DOTALL)


def _files(paths: Iterable[Path]) -> list[Path]:
    return [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]


if __name__ == "__main__":
    raise SystemExit(main())
