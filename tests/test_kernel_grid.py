"""The page of the grid of shapes, against the result that it is written from."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.kernels.grid_report import PAGE, RESULTS, grid_lines, last_runs, together


def test_the_page_holds_the_last_runs_and_every_cell_that_is_behind() -> None:
    cells = together(last_runs())["cases"]
    lines = grid_lines(last_runs())
    assert "\n".join(lines) in PAGE.read_text()
    behind = [cell["name"] for cell in cells if cell["arms"]["lanewise"]["ratio"] < 0.98]
    assert 0 < len(behind) < len(cells)
    assert all(any(line.startswith(f"| {name} |") for line in lines) for name in behind)


def test_of_a_cell_that_two_runs_measured_the_later_one_counts(tmp_path: Path) -> None:
    whole = json.loads(sorted(RESULTS.glob("*.json"))[-1].read_text())
    first, second, third = whole["cases"][:3]
    slower = {**first, "arms": {**first["arms"], "lanewise": {**first["arms"]["lanewise"], "ratio": 0.1}}}
    runs = ({"cases": [first, second], "skipped": [third["name"]]}, {"cases": [slower, third], "skipped": ["a", "b"]})
    paths = [tmp_path / f"2026-01-01-{number}.json" for number in (1, 2)]
    for path, run in zip(paths, runs, strict=True):
        path.write_text(json.dumps({**whole, **run}))
    found = together(paths)
    assert found["cases"] == [slower, second, third]
    assert found["skipped"] == ["a", "b"]
