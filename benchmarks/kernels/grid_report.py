"""Write docs/appendix/kernels-grid.md from the results of the grid: `python -m benchmarks.kernels.grid_report`.

The runs of the last day count, and of a cell that several of them measured the last one. A cell is behind where the best
other way takes less than 0.98 of our time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h200" / "kernels" / "grid"
PAGE = ROOT / "docs" / "appendix" / "kernels-grid.md"
LEVEL, WORST = 0.98, 0.93
MULTIPROCESSORS = 132

Cell = dict[str, Any]


def last_runs() -> list[Path]:
    """The results of the last day, in order: their names begin with the date."""
    paths = sorted(RESULTS.glob("*.json"))
    return [path for path in paths if path.name[:10] == paths[-1].name[:10]]


def together(paths: list[Path]) -> dict[str, Any]:
    """Results as one: the machine of the last, and the last measurement of each cell."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    cells = {cell["name"]: cell for document in documents for cell in document["cases"]}
    skipped = {name for document in documents for name in document["skipped"]} - cells.keys()
    return {**documents[-1], "cases": list(cells.values()), "skipped": sorted(skipped)}


def _ratio(cell: Cell) -> float:
    return float(cell["arms"]["lanewise"]["ratio"])


def _why(cell: Cell) -> str:
    """What sets the time of a cell, by its shape and what it moves."""
    rows, cols = cell["shape"]["rows"], cell["shape"]["cols"]
    size = 4 if cell["dtype"] == "float32" else 2
    ours = cell["arms"]["lanewise"]
    if ours["median_us"] < 12 and ours["of_copy"] < 0.6:
        return "latency: the call lasts little longer than one wait for memory"
    if cols * size % 16:
        return "rows that begin anywhere: values are read one by one"
    if rows <= 32 * MULTIPROCESSORS:
        return "one or a few waves of programs"
    return "bandwidth"


def _counts(cells: list[Cell], title: str) -> str:
    ratios = sorted(map(_ratio, cells))
    level = sum(ratio >= LEVEL for ratio in ratios)
    close = sum(ratio >= WORST for ratio in ratios)
    middle = ratios[len(ratios) // 2]
    return (
        f"| {title} | {len(cells)} | {level} ({level / len(cells):.0%}) | {close} ({close / len(cells):.0%}) | "
        f"{middle:.2f} | {ratios[0]:.2f} |"
    )


def grid_lines(paths: list[Path]) -> list[str]:
    """The page's lines for the results of some runs."""
    document, files = together(paths), ", ".join(f"`{path.relative_to(ROOT)}`" for path in paths)
    machine, cells = document["machine"], [cell for cell in document["cases"] if "arms" in cell]
    lines = [
        f"{machine['card']}, driver {machine['driver']}, torch {machine['torch']}, Triton {machine['triton']}: "
        f"{len(cells)} cells of {len(cells) + len(document['skipped'])}, in random order until the time was up; device "
        f"time, median of {len(cells[0]['arms']['lanewise']['rounds_us'])} rounds in turns. From {files}. A ratio is "
        "the time of the best of eager PyTorch, `torch.compile` and Liger over ours.",
        "",
        f"| cells | number | {LEVEL} or better | {WORST} or better | median ratio | worst |",
        "|---|---|---|---|---|---|",
        _counts(cells, "all"),
    ]
    for kernel in ("softmax", "rms_norm", "layer_norm"):
        lines.append(_counts([cell for cell in cells if cell["name"].startswith(kernel)], kernel))
    lines.append(_counts([cell for cell in cells if cell["arms"]["lanewise"]["median_us"] >= 12], "12 us and longer"))
    behind = sorted((cell for cell in cells if _ratio(cell) < LEVEL), key=_ratio)
    lines += [
        "",
        "| behind | ours, us | best other, us | which | ratio | what sets the time |",
        "|---|---|---|---|---|---|",
    ]
    for cell in behind:
        arms, ours = cell["arms"], cell["arms"]["lanewise"]
        other = arms[ours["best_other"]]["median_us"]
        lines.append(
            f"| {cell['name']} | {ours['median_us']:.1f} | {other:.1f} | {ours['best_other']} | {_ratio(cell):.2f} | "
            f"{_why(cell)} |"
        )
    lost = [f"{cell['name']}: {cell.get('failed', 'wrong')}" for cell in document["cases"] if "arms" not in cell]
    return [*lines, *(["", "Without a result: " + "; ".join(lost) + "."] if lost else [])]


def main() -> None:
    head = [
        "# Rows of any shape",
        "",
        "How `lanewise.kernels` compares over a grid of shapes: 1 to a million rows, 32 to 262144 columns, odd",
        "ones too, in three types (`python -m benchmarks.kernels OUT.json --group grid --no-tuning`).",
        "",
    ]
    PAGE.write_text("\n".join([*head, *grid_lines(last_runs()), ""]))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
