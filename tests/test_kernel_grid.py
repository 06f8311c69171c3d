"""The page of the grid of shapes, against the result that it is written from."""

from __future__ import annotations

import json

from benchmarks.kernels.grid_report import PAGE, RESULTS, ROOT, grid_lines


def test_the_page_holds_the_last_run_and_every_cell_that_is_behind() -> None:
    last = sorted(RESULTS.glob("*.json"))[-1]
    document = json.loads(last.read_text())
    lines = grid_lines(document, str(last.relative_to(ROOT)))
    assert "\n".join(lines) in PAGE.read_text()
    behind = [cell["name"] for cell in document["cases"] if cell["arms"]["lanewise"]["ratio"] < 0.98]
    assert 0 < len(behind) < len(document["cases"])
    assert all(any(line.startswith(f"| {name} |") for line in lines) for name in behind)
