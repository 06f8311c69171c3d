"""Problems in KernelBench's form, written for these tests, through `optimize`; what is said of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kernelbench.problems import Problem, fooled_by, found_in, loaded, passes
from benchmarks.kernelbench.table import markdown, totals

torch = pytest.importorskip("torch")

_PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, {out})

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.rand(8, 16)]

def get_init_inputs():
    return [16]
"""


def _written(folder: Path, name: str, forward: str = "self.linear(x)", out: int = 4) -> Problem:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(_PROBLEM.format(forward=forward, out=out))
    return Problem(2, 7, path)


def test_problems_are_found_by_level_and_number(tmp_path: Path) -> None:
    for name in ("level1/10_b.py", "level1/2_a.py", "level2/7_c.py", "level1/helper.py"):
        _written(tmp_path, name)
    (tmp_path / "level1" / "3_none.py").write_text("x = 1\n")
    assert [one.name for one in found_in(tmp_path)] == ["1/2_a", "1/10_b", "2/7_c"]
    assert [one.name for one in found_in(tmp_path, (2,))] == ["2/7_c"]
    with pytest.raises(FileNotFoundError, match="no problem below"):
        found_in(tmp_path, (3,))


@pytest.mark.parametrize(
    ("forward", "out", "reasons"),
    [
        ("self.linear(x)", 4, []),
        ("torch.softmax(self.linear(x), dim=1)", 1, ["the result of other inputs"]),
        ("self.linear(x) - self.linear(x)", 4, ["zeros"]),
        ("torch.log(self.linear(x) * 0)", 4, ["results that are not finite", "the result of other inputs"]),
    ],
)
def test_problems_whose_own_check_is_fooled_are_named(
    forward: str, out: int, reasons: list[str], tmp_path: Path
) -> None:
    model, inputs = loaded(_written(tmp_path, "7_a.py", forward, out), "cpu")
    assert fooled_by(model, inputs) == reasons


def test_the_benchmarks_own_check() -> None:
    one = torch.ones(3)
    assert passes([one, one * 100], (one + 0.005, one * 100.5))
    assert not passes(one, one + 0.1)
    assert not passes(one, torch.ones(3, 1))
    assert not passes([one], [one, one])


def _row(against_eager: float, against_best: float, *, right: bool = True, fooled: bool = False) -> dict[str, Any]:
    reasons = ["zeros"] if fooled else []
    return {
        "plan": ["compile"],
        "right": right,
        "fooled_by": reasons,
        "seconds": 5.0,
        "best_mode": "default",
        "against_eager": against_eager,
        "against_best": against_best,
    }


def test_shares_count_what_is_wrong_or_failed_as_not_faster() -> None:
    rows = {
        "1/1_a": _row(1.3, 1.1),
        "1/2_b": _row(3.0, 0.9, right=False),
        "1/3_c": {"failed": "out of memory"},
        "1/4_d": _row(1.0, 0.95, fooled=True),
        "2/1_e": _row(2.5, 1.0),
    }
    found = totals(rows)
    one = found["level 1"]
    assert (one["problems"], one["failed"], one["wrong results accepted"], one["own check fooled"]) == (4, 1, 1, 1)
    assert one["share faster than eager by"] == {"1.0x": 0.25, "1.2x": 0.25, "1.5x": 0.0, "2.0x": 0.0}
    assert one["below 0.98 of the best mode"] == ["1/2_b", "1/4_d"]
    assert found["all"]["share faster than eager by"]["2.0x"] == 0.2
    text = markdown({"totals": found, "problems": rows})
    assert "| 1/2_b | compile | 3.00 | 0.90 (default) | WRONG |" in text
    assert "| 1/3_c | | | | out of memory |" in text
    assert "its check passes zeros" in text


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.kernelbench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_problem_is_optimized_checked_and_timed(tmp_path: Path) -> None:
    _written(tmp_path, "level2/7_a.py")
    output = tmp_path / "found.json"
    done = _run(tmp_path, "--device", "cpu", "--budget", "4s", "--modes", "--output", output)
    assert done.returncode == 0, done.stderr
    row = json.loads(output.read_text())["problems"]["2/7_a"]
    assert row["right"]
    assert row["best_mode"] is None
    assert 0.5 < row["against_eager"] < 20
    assert "2/7_a" in output.with_suffix(".md").read_text()


@pytest.mark.slow
def test_a_folder_without_problems_is_one_line(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("no problem below")
    assert done.stderr.count("\n") == 1
