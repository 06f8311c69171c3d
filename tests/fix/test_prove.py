"""What proves edits: that the program prints the same, and what may be said of its time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if find_spec("libcst") is None:
    pytest.skip("edits sources", allow_module_level=True)

from lanewise.cli.main import main
from lanewise.edit import prove as proving
from lanewise.edit.printed import compare_printed
from lanewise.edit.source_text import Source

Said = dict[str, list[str]]
Apply = Callable[..., tuple[int, str, str]]

SAME: dict[str, tuple[str, str]] = {
    "the same text": ("done\n", "done\n"),
    "a roundoff": ("loss 0.12345678", "loss 0.12345681"),
    "the last of many digits": ("loss 0.1234", "loss 0.1235"),
    "nan": ("loss nan", "loss nan"),
    "nothing, two ways": ("-0.0000001192", "0.0"),
    "with a unit": ("1.23456s", "1.23457s"),
}
OTHER: dict[str, tuple[str, str]] = {
    "a count": ("64", "0"),
    "nan that became a number": ("x nan", "x 1.0"),
    "a number that became nan": ("x 1.0", "x nan"),
    "another sign": ("-1.0", "1.0"),
    "infinity, the other way": ("inf", "-inf"),
    "a line less": ("a\nb", "a"),
    "another shape": ("(3, 4)", "(4, 3)"),
    "few digits": ("0.1", "0.2"),
    "a small number": ("1e-05", "2e-05"),
    "words": ("information", "infinite"),
    "one percent": ("loss 1.0000", "loss 1.0100"),
}


@pytest.mark.parametrize("case", SAME)
def test_rounding_is_no_difference(case: str) -> None:
    before, after = SAME[case]
    assert compare_printed([before], [after]) == (True, True, "")


@pytest.mark.parametrize("case", OTHER)
def test_anything_else_is_one(case: str) -> None:
    before, after = OTHER[case]
    printed = compare_printed([before], [after])
    assert not printed.same
    assert printed.difference


def test_what_changes_by_itself_is_not_held_against_the_edits_and_all_else_is() -> None:
    runs = ["took 1.23 s\ncount 5", "took 1.31 s\ncount 5"]
    assert compare_printed(runs, ["took 9.9 s\ncount 5"]) == (True, False, "")
    assert compare_printed(runs, ["took 1.2 s\ncount 6"]) == (False, False, "'count 5' became 'count 6'")
    assert compare_printed(["a\n", "a\nb\n"], ["c\n"]) == (False, False, "")


def test_every_run_of_the_edited_program_counts() -> None:
    assert not compare_printed(["5", "5"], ["6", "5"]).same


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Recording is replaced: what both forms of a program print, run by run; the last is printed from then on."""
    said: Said = {"before": ["64\n"], "after": ["0\n"], "order": []}

    def record(program: Path, arguments: Any, folder: Path, name: str, *, quick: bool = False) -> str:
        said["order"].append(name)
        return _next(said[folder.name])

    step = SimpleNamespace(verdict="no difference")
    comparison: Any = SimpleNamespace(differences=[SimpleNamespace(step=step)])
    monkeypatch.setattr(proving, "record_once", record)
    monkeypatch.setattr(proving, "run_once", lambda *_: _next(said["before"]))
    monkeypatch.setattr(proving, "diff", lambda *_, **__: comparison)
    monkeypatch.setattr(proving, "_as_sure_as", lambda comparison, runs: comparison)
    monkeypatch.setattr("lanewise.cli.changing.fix.print_proof", lambda proof, *_: print(proof.printed))
    return said


def _next(outputs: list[str]) -> str:
    return outputs.pop(0) if len(outputs) > 1 else outputs[0]


@pytest.fixture
def apply(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Apply:
    """Runs the command: exit code, what was said, and the file afterwards."""

    def run(*words: str) -> tuple[int, str, str]:
        script = tmp_path / "a.py"
        script.write_text("import torch\n\nx = torch.ones(3)\nx.sum().item()\n")
        monkeypatch.setattr(sys, "argv", ["lanewise", "fix", *words, str(script)])
        try:
            code = main() or 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return code, said.out + said.err, script.read_text()

    return run


@pytest.mark.parametrize("count", ["1", "2", "4"])
def test_edits_that_change_the_output_are_not_written(runs: Said, apply: Apply, count: str) -> None:
    code, said, text = apply("--apply", "--runs", count)
    assert code == 1
    assert "'64' became '0'" in said
    assert "nothing is written" in said
    assert "item" in text


def test_edits_that_do_not_are_written(runs: Said, apply: Apply) -> None:
    runs["after"] = ["64\n"]
    code, said, text = apply("--apply", "--runs", "2")
    assert code == 0, said
    assert "item" not in text
    assert runs["order"] == ["before0", "after0", "after1", "before1"], "neither always goes first"


def test_a_program_that_never_prints_the_same_is_no_proof_against_them(runs: Said, apply: Apply) -> None:
    runs |= {"before": ["at 1.25\n", "at 1.5\n"], "after": ["at 7.5\n"]}
    code, said, text = apply("--apply", "--runs", "1")
    assert code == 0, said
    assert "once more without the edits" in said
    assert "item" not in text


def test_a_diff_and_writing_exclude_each_other(apply: Apply) -> None:
    code, said, text = apply("--diff", "--apply", "--no-proof")
    assert code == 2
    assert "--diff changes nothing" in said
    assert "item" in text


def test_one_run_per_side_has_no_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.compare.programs import PROGRAM, compare_traces, record

    comparison = compare_traces(record(PROGRAM, 1), record(PROGRAM, 2))
    assert comparison.differences[0].step.low is not None
    monkeypatch.setattr(proving, "record_once", lambda *_, **__: "")
    monkeypatch.setattr(proving, "diff", lambda *_, **__: comparison)
    script = tmp_path / "a.py"
    script.write_text("x = 1\n")
    proof = proving.prove(script, Source("x = 2\n", "utf-8"), [], tmp_path, runs=1, tell=lambda _: None)
    step = proof.comparison.differences[0].step
    assert (step.verdict, step.low, step.high, step.p) == ("not enough samples", None, None, None)
    said = proof.comparison.differences[0].verdict
    assert "interval" not in said
    assert "about 4 runs per side" in said
