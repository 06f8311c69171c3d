"""Write the tables of docs/appendix/kernels-measured.md and the charts: `python -m benchmarks.kernels.report`.

The tables are of the card in `CARD`; beside each case stands what another card gave, where it was measured there. A
case measured again replaces the earlier measurement; every row says which file it is from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.kernels.charts import write_charts
from benchmarks.kernels.defaults import behind

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CARD, BESIDE = "h200", "h100"
PAGE = ROOT / "docs" / "appendix" / "kernels-measured.md"
CHARTS = ROOT / "docs" / "images" / "kernels"
COMPILED = RESULTS / CARD / "compiled-sm90.json"
COMPILED_BEGIN, COMPILED_END = "<!-- compiled: begin -->", "<!-- compiled: end -->"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
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
    "mm": "Plain product (never replaced; Triton against cuBLAS)",
    "gemm": "Linear layer with its epilogue",
    "gated_linear": "Gate and up projection with SiLU * mul",
    "gated_mlp": "Gated MLP for few rows (SiLU)",
    "batched_linear": "Batch of linear layers with bias and exact GELU",
}
PRODUCTS = ("mm", "gemm", "gated_linear", "batched_linear", "mlp")
Measured = dict[str, tuple[str, dict[str, Any]]]


def _documents(card: str) -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, json.loads(path.read_text())) for path in sorted((RESULTS / card / "kernels").glob("*.json"))]


def _latest(documents: list[tuple[str, dict[str, Any]]]) -> Measured:
    """The last measurement of each case, by name, with the file it is from."""
    found: Measured = {}
    for stem, document in documents:
        for case in document["cases"]:
            if "group" in case and "arms" in case:
                found[case["name"]] = (stem, case)
    return found


def measured() -> Measured:
    """The last measurement of each case on the card of the tables."""
    return _latest(_documents(CARD))


def _defaults(found: Measured) -> list[str]:
    """How far the untuned defaults are from the fastest candidates."""
    ratios = sorted((ratio, name) for name, (_, case) in found.items() if (ratio := behind(case)) is not None)
    if not ratios:
        return []
    worst, name = ratios[-1]
    return [
        f"What ships untuned was among the tuner's candidates in {len(ratios)} of these cases, and at most "
        f"{(worst - 1) * 100:.1f} % behind the fastest of them ({name}).",
        "",
    ]


def _word(arm: dict[str, Any]) -> str:
    """The verdict of the protocol for a ratio with its interval."""
    low, high = arm["ratio_95"]
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "no difference" if low > 0.98 and high < 1.02 else "not enough samples"


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    """What a caller of the public function gets; the Triton kernel where there is no such function."""
    return case["arms"].get("lanewise") or case["arms"]["triton"]


def _run(stem: str) -> str:
    """The number of the run: file names are a date, a number and a word."""
    return stem[11:].split("-")[0]


def _table(group: str, cases: list[tuple[str, dict[str, Any]]], beside: Measured) -> list[str]:
    names: list[str] = []
    for _, case in cases:
        names += [name for name in case["arms"] if name not in names]
    names = names or ["lanewise"]
    product = group in PRODUCTS
    rate = "TFLOP/s" if product else "of copy"
    lines = [
        f"### {TITLES[group]}",
        "",
        f"| case | {' | '.join(names)} | {rate} | best other / ours (95 %) | verdict | run | "
        f"{BESIDE.upper()}: {rate} | ratio |",
        "|---|" + "---|" * (len(names) + 6),
    ]
    for run, case in cases:
        arms, ours = case["arms"], _ours(case)
        cells = [f"{arms[name]['median_us']:.1f}" if name in arms else "" for name in names]
        low, high = ours["ratio_95"]
        ratio = f"{ours['ratio']:.3f} ({low:.3f} to {high:.3f})"
        there = _ours(beside[case["name"]][1]) if case["name"] in beside else None
        other = [_rate(there, product), f"{there['ratio']:.3f}"] if there else ["", ""]
        lines.append(
            f"| {case['name']} | {' | '.join(cells)} | {_rate(ours, product)} | {ratio} | {_word(ours)} | {_run(run)} | "
            f"{' | '.join(other)} |"
        )
    done = {case["name"] for _, case in cases}
    for name, (_, case) in beside.items():
        if case["group"] == group and name not in done:
            there = _ours(case)
            blank = " | ".join("" for _ in names)
            lines.append(
                f"| {name} | {blank} |  | not measured |  |  | {_rate(there, product)} | {there['ratio']:.3f} |"
            )
    return [*lines, ""]


def _rate(arm: dict[str, Any], product: bool) -> str:
    return f"{arm['tflop_per_s']:.0f}" if product else f"{arm['of_copy']:.3f}"


def _host_table(card: str, documents: list[tuple[str, dict[str, Any]]]) -> list[str]:
    found = {case["name"]: (_run(stem), case) for stem, document in documents for case in document["cases"]}
    lines = [
        f"### Host cost of a call ({card.upper()} machine)",
        "",
        "| call | eager | lanewise | lanewise / eager | kernel forced | plain Triton | torch.compile | graph of eager "
        "| run |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run, case in found.values():
        arms = {name: arm["median_us"] for name, arm in case["arms"].items()}
        more = [f"{arms[n]:.1f}" if n in arms else "" for n in ("kernel", "plain triton", "compile", "graph")]
        lines.append(
            f"| {case['name']} | {arms['eager']:.1f} | {arms['lanewise']:.1f} | "
            f"{arms['lanewise'] / arms['eager']:.2f} | {' | '.join(more)} | {run} |"
        )
    return [
        *lines,
        "",
        "Microseconds of wall time per call, back to back, median of the rounds.",
        "",
    ]


def _training_table(card: str, documents: list[tuple[str, dict[str, Any]]]) -> list[str]:
    found = {case["name"]: case for _, document in documents for case in document["cases"]}
    lines = [
        f"### Forward and backward pass, rows of 4096 ({card.upper()} machine)",
        "",
        "| pass | eager, wall | kernel, wall | eager / kernel | eager, device | kernel, device | eager / kernel |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in sorted(found.values(), key=lambda case: (case["name"].split()[0], case["name"].split("^")[1])):
        cells: list[str] = []
        for clock in ("wall", "device"):
            eager, ours = (case[clock][arm]["median_us"] for arm in ("eager", "kernel"))
            cells += [f"{eager:.1f}", f"{ours:.1f}", f"{eager / ours:.2f}"]
        lines.append(f"| {case['name'].replace(' forward and backward', ',')} | {' | '.join(cells)} |")
    runs = ", ".join(sorted({_run(stem) for stem, _ in documents}))
    return [*lines, "", f"Microseconds, medians of the rounds (run {runs}).", ""]


def _header(documents: list[tuple[str, dict[str, Any]]], beside: list[tuple[str, dict[str, Any]]]) -> str:
    machine = documents[-1][1]["machine"]
    copies = sorted(d["calibration_start"]["copy_gb_per_s"] for _, d in documents)
    rounds = sorted({len(_ours(c)["rounds_us"]) for _, d in documents for c in d["cases"] if "arms" in c})
    other = beside[-1][1]["machine"]
    return (
        f"**{machine['card']}**, driver {machine['driver']}, torch {machine['torch']}, triton {machine['triton']}, "
        f"Python {machine['python']}; bf16, random data, microseconds of device time (median of "
        f"{' to '.join(str(n) for n in sorted({rounds[0], rounds[-1]}))} interleaved rounds, CUDA graph over rotated "
        "inputs). Copy bandwidth, measured in the same "
        f"processes: {copies[0]:.0f} to {copies[-1]:.0f} GB/s. The last two columns are of **{other['card']}** (torch "
        f"{other['torch']}, triton {other['triton']}), measured earlier and with earlier kernels."
    )


def _lost(documents: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Cases that failed or were not reached in every document, with the reason."""
    measured = set(_latest(documents))
    lost: dict[str, str] = {}
    for _, document in documents:
        for case in document["cases"]:
            if "failed" in case and case["name"] not in measured:
                lost[case["name"]] = case["failed"].split(":")[0]
        for name in document.get("skipped", []):
            if name not in measured:
                lost.setdefault(name, "not reached")
    return [f"{name} ({reason})" for name, reason in sorted(lost.items())]


ROW_KERNELS = ("softmax", "rms_norm", "layer_norm", "add_rms_norm", "softmax backward")


def _compiled_table() -> list[str]:
    """What the compiler makes of the kernels: registers and resident programs, row kernels side by side."""
    document = json.loads(COMPILED.read_text())
    layouts: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for row in document["kernels"]:
        text = f"{row['registers']} / {row['programs']}"
        if row["spilled"]:
            text += f", {row['spilled']} B spilled"
        if row["kernel"] in ROW_KERNELS:
            layouts.setdefault(row["layout"], {})[row["kernel"]] = text
        else:
            others.append(f"| {row['kernel']}, {row['layout']} | {text} |")
    lines = [f"| columns of a program | {' | '.join(ROW_KERNELS)} |", "|---|" + "---|" * len(ROW_KERNELS)]
    lines += [
        f"| {layout} | {' | '.join(cells.get(n, '') for n in ROW_KERNELS)} |" for layout, cells in layouts.items()
    ]
    lines += ["", "| other kernels | registers / programs |", "|---|---|", *others, ""]
    return [*lines, f"Registers of a thread / programs that one multiprocessor holds; Triton {document['triton']}."]


def _replace(text: str, begin: str, end: str, lines: list[str]) -> str:
    before, rest = text.split(begin)
    return before + "\n".join([begin, "", *lines, "", end]) + rest.split(end)[1]


def main() -> None:
    found, there = _documents(CARD), _documents(BESIDE)
    documents = [(stem, document) for stem, document in found if "calibration_start" in document]
    hosts = [(stem, document) for stem, document in found if stem.endswith("-host")]
    trained = [(stem, document) for stem, document in found if stem.endswith("-training")]
    beside = _latest(there)
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for stem, case in _latest(documents).values():
        groups.setdefault(case["group"], []).append((stem, case))
    older = [(stem, document) for stem, document in there if "calibration_start" in document]
    lines = [_header(documents, older), ""]
    for group in TITLES:
        if group in groups or any(case["group"] == group for _, case in beside.values()):
            members = sorted(groups.get(group, []), key=lambda pair: list(pair[1]["shape"].values())[::-1])
            lines += _table(group, members, beside)
    lines += _defaults(_latest(documents))
    lost = _lost(documents)
    if lost:
        lines += [f"Without a result: {'; '.join(lost)}.", ""]
    if hosts:
        lines += _host_table(CARD, hosts)
    if trained:
        lines += _training_table(CARD, trained)
    text = _replace(PAGE.read_text(), BEGIN, END, lines[:-1])
    PAGE.write_text(_replace(text, COMPILED_BEGIN, COMPILED_END, _compiled_table()))
    for path in write_charts([document for _, document in documents], CHARTS):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
