"""Write the tables and charts of docs/kernels.md from the result files: `python -m benchmarks.kernels.report`.

A case measured again replaces the earlier measurement; every row says which file it is from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lanewise.kernels.charts import write_charts

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h100" / "kernels"
PAGE = ROOT / "docs" / "kernels.md"
CHARTS = ROOT / "docs" / "images" / "kernels"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
OURS = ("lanewise", "triton")
TITLES = {
    "pointwise": "Pointwise chains",
    "softmax": "Softmax, forward",
    "rms_norm": "RMSNorm, forward",
    "layer_norm": "LayerNorm, forward",
    "add_rms_norm": "Residual addition + RMSNorm, forward",
    "softmax_backward": "Softmax, backward",
    "rms_norm_backward": "RMSNorm, backward (dx and dw)",
    "layer_norm_backward": "LayerNorm, backward (dx, dw and db)",
    "mlp": "Narrow MLP in one kernel (tanh GELU)",
    "gemm": "Linear layer with its epilogue",
    "gated_linear": "Gate and up projection with SiLU * mul",
}


def _documents() -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]


def _word(arm: dict[str, Any]) -> str:
    """The verdict of the protocol for a ratio with its interval."""
    low, high = arm["ratio_95"]
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "no difference" if low > 0.98 and high < 1.02 else "not enough samples"


def _table(group: str, cases: list[tuple[str, dict[str, Any]]]) -> list[str]:
    names: list[str] = []
    for _, case in cases:
        names += [name for name in case["arms"] if name not in names]
    product = group in ("gemm", "gated_linear", "mlp")
    rate = "TFLOP/s" if product else "of copy"
    lines = [
        f"### {TITLES[group]}",
        "",
        f"| case | {' | '.join(names)} | {rate} | best other / ours (95 %) | verdict | run |",
        "|---|" + "---|" * (len(names) + 4),
    ]
    for run, case in cases:
        arms = case["arms"]
        ours = arms["triton"] if "triton" in arms else arms["lanewise"]
        cells = [f"{arms[name]['median_us']:.1f}" if name in arms else "" for name in names]
        reached = f"{ours['tflop_per_s']:.0f}" if product else f"{ours['of_copy']:.3f}"
        low, high = ours["ratio_95"]
        ratio = f"{ours['ratio']:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {case['name']} | {' | '.join(cells)} | {reached} | {ratio} | {_word(ours)} | {run[11:12]} |")
    return [*lines, ""]


def main() -> None:
    documents = [(stem, document) for stem, document in _documents() if "calibration_start" in document]
    hosts = [(stem, document) for stem, document in _documents() if "calibration_start" not in document]
    latest: dict[str, tuple[str, dict[str, Any]]] = {}
    for stem, document in documents:
        for case in document["cases"]:
            if "arms" in case:
                latest[case["name"]] = (stem, case)
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for stem, case in latest.values():
        groups.setdefault(case["group"], []).append((stem, case))
    machine = documents[-1][1]["machine"]
    lines = [
        BEGIN,
        "",
        f"{machine['card']}, driver {machine['driver']}, torch {machine['torch']}, triton {machine['triton']}, "
        f"Python {machine['python']}; bf16, random data, microseconds of device time (median of 6 to 8 interleaved "
        "rounds, CUDA graph over rotated inputs).",
        "",
    ]
    for group in TITLES:
        if group in groups:
            members = sorted(groups[group], key=lambda pair: list(pair[1]["shape"].values())[::-1])
            lines += _table(group, members)
    for stem, document in hosts:
        lines += ["### Host cost of a call", "", "| call | eager | lanewise | ratio | plain Triton | torch.compile |"]
        lines.append("|---|---|---|---|---|---|")
        for case in document["cases"]:
            arms = {name: arm["median_us"] for name, arm in case["arms"].items()}
            more = [f"{arms[name]:.1f}" if name in arms else "" for name in ("plain triton", "compile")]
            lines.append(
                f"| {case['name']} | {arms['eager']:.1f} | {arms['lanewise']:.1f} | "
                f"{arms['lanewise'] / arms['eager']:.2f} | {more[0]} | {more[1]} |"
            )
        lines += ["", f"Microseconds of wall time per call, back to back, 21 rounds (run {stem[11:12]}).", ""]
    lines.append(END)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + "\n".join(lines) + rest.split(END)[1])
    for path in write_charts([document for _, document in documents], CHARTS):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
