"""What the differences of the recorded experiments say, beside what the field's tutorials say.

    python -m benchmarks.compare.experiments TRACES

TRACES is the folder of recordings made by `benchmarks/experiments/run.py`. Writes `benchmarks/results/h100/diffs.json` and
the table in docs/appendix/compare-measured.md.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lanewise.compare.diff import diff
from lanewise.report.quantity import format_quantity

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- pairs: begin -->", "<!-- pairs: end -->"


class Claim(NamedTuple):
    """A pair of recordings and what is said about it."""

    a: str
    b: str
    said: str


CLAIMS = [
    Claim("matmul_add-64-cold", "matmul_add-64-warm", "the first calls are slow on the host"),
    Claim(
        "matmul_add-64-warm",
        "matmul_add-64-compile",
        "same kernel; a copy and a GEMM replace GEMM and add; CPU time grows",
    ),
    Claim("matmul_add-4096-warm", "matmul_add-4096-compile", "the same at 4096"),
    Claim(
        "matmul_add-64-warm",
        "matmul_add-64-reduce-overhead",
        "left as an exercise; 133.8 to 111.5 us in a reproduction",
    ),
    Claim("matmul_add-64-warm", "matmul_add-64-graph", "one launch"),
    Claim("linear-published", "linear-published-compile", "same kernel, `aten::t` gone"),
    Claim("linear-1024", "linear-1024-compile", "a single GEMM with bias has nothing to fuse"),
    Claim("mlp-256", "mlp-256-compile", "compile turns an MLP into one kernel (secondary articles)"),
    Claim("mlp-256", "mlp-256-graph", "a graph removes the launches"),
    Claim("geglu-published", "geglu-published-compile", "three identical GEMMs and one fused kernel"),
    Claim("swiglu-4096", "swiglu-4096-compile", "one round trip less (ours)"),
    Claim("attention-naive", "attention-inplace", "one copy disappears with the underscore"),
    Claim("attention-naive", "attention-default", "one fused kernel"),
    Claim("attention-math", "attention-flash", "7.239 ms to 146.8 us (A100)"),
    Claim("softmax-naive", "softmax-compiled", "five passes become one"),
    Claim("llm-prefill", "llm-prefill-compile", "host-bound: compile"),
    Claim("llm-train", "llm-train-compile", "fusion of everything but the GEMMs"),
    Claim("unfused_chain-bad", "unfused_chain-good", "a pointwise chain is one kernel"),
]


def main() -> None:
    """Command line."""
    folder = Path(sys.argv[1])
    rows = [_row(claim, folder) for claim in CLAIMS]
    out = ROOT / "benchmarks" / "results" / "h100" / "diffs.json"
    out.write_text(json.dumps({"schema": 1, "command": "python -m benchmarks.compare.experiments TRACES", "pairs": rows},
                              indent=1, ensure_ascii=False) + "\n", encoding="utf-8")  # fmt: skip
    page = ROOT / "docs" / "appendix" / "compare-measured.md"
    text = page.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:begin] + "\n" + _table(rows) + text[end:], encoding="utf-8")


def _row(claim: Claim, folder: Path) -> dict[str, Any]:
    comparison = diff(folder / f"{claim.a}.json.gz", folder / f"{claim.b}.json.gz")
    difference, other = comparison.differences[0], comparison.others[0]
    counts = {count.key: (count.a, count.b) for count in difference.counts}
    step = difference.step
    return {
        "a": claim.a,
        "b": claim.b,
        "said": claim.said,
        "verdict": difference.verdict,
        "step_us": [comparison.base.step_ns / 1e3, other.step_ns / 1e3],
        "device_us": [comparison.base.device_ns / 1e3, other.device_ns / 1e3],
        "launches": counts.get("launches", (0, 0)),
        "step": {"verdict": step.verdict, "ratio": step.ratio, "low": step.low, "high": step.high,
                 "samples": [step.a_count, step.b_count]},
        "matched": difference.coverage.matched_share,
        "explained": difference.coverage.explained_share,
        "statements": [statement.code for statement in difference.statements],
    }  # fmt: skip


# The sentences about the step time, which a verdict begins with.
_STEP = re.compile(r"^The step [^()]*?\. (Step time: [^()]*\([^()]*\)(: [^.]*)?\. )?")


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| pair | what is said | what the difference says | step | device | launches | time accounted for |",
        "|---|---|---|---|---|---|---:|",
    ]
    for row in rows:
        # The sentence about the work alone, without the times that have columns of their own.
        verdict = _STEP.sub("", row["verdict"])
        work = re.split(r" \((?:device time|\d[\d.,]* \w+ of device time)|\. The step", verdict, maxsplit=1)[0]
        times = [" → ".join(format_quantity("time", us * 1e3) for us in row[key]) for key in ("step_us", "device_us")]
        launches = " → ".join(f"{count:g}" for count in row["launches"])
        share = format_quantity("share", row["matched"] + row["explained"])
        cells = [f"{row['a']}, {row['b']}", row["said"], work.replace("|", "/"), *times, launches, share]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
