"""Proofs keep what was predicted beside what was measured, and a script makes a table of them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("libcst")

from benchmarks.replay import proofs
from msgspec.structs import replace

import lanewise
from lanewise.cli.changing.fix import _by_gain, print_proof
from lanewise.cli.main import cli
from lanewise.edit import prove as proving
from lanewise.edit.edit import Suggestion
from lanewise.edit.source_text import Source
from lanewise.fix.bounds import Known, known_from, order
from lanewise.fix.candidates.candidate import Candidate
from tests.support.corpus import REPOSITORY

ITEMS = """import torch


def f(layers, x):
    total = 0.0
    for layer in layers:
        x = layer(x)
        total += x.sum().item()
    return total
"""
H200 = REPOSITORY / "tests" / "data" / "h200"


def proof_of(pair: str, answers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> proving.Proof:
    """The proof of an edit, from recordings of the two programs of a pair."""

    def record_once(program: Path, arguments: Any, folder: Path, name: str, *, quick: bool = False) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        side = "slow" if folder.name == "before" else "fixed"
        shutil.copy(H200 / f"{pair}-{side}.json.gz", folder / f"{name}.json.gz")
        return "64\n"

    monkeypatch.setattr(proving, "record_once", record_once)
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    edited = Source("x = 2\n", "utf-8")
    folder = tmp_path / "recordings"
    return proving.prove(script, edited, [], folder, runs=1, tell=lambda _: None, answers=answers)


def test_a_proof_holds_the_prediction_against_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = proof_of("cast_again", ("MEM106", "OPT104"), tmp_path, monkeypatch)
    assert proof.predicted is not None
    assert [one.change for one in proof.predicted.changes] == ["MEM106"]
    measured = proof.comparison.others[0].step_ns / 1e3
    assert proof.predicted.predicted.step_us == pytest.approx(measured, rel=0.15)
    assert "predicted with MEM106 fixed" in proof.predicted_beside_measured
    assert "; measured: " in proof.predicted_beside_measured


def test_with_a_price_the_proof_and_each_suggestion_say_what_they_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = proof_of("cast_again", ("MEM106",), tmp_path, monkeypatch)
    print_proof(proof, 3.6)
    shown = capsys.readouterr()
    assert "the edits save" not in shown.err  # one recording of each shows nothing
    assert len(shown.out.splitlines()) <= 40
    assert "From one step time to the other" in shown.out
    (difference,) = proof.comparison.differences
    faster = replace(difference, step=replace(difference.step, verdict="faster"))
    print_proof(proof._replace(comparison=replace(proof.comparison, differences=[faster])), 3.6)
    # A thousandth of a dollar a second: so many dollars a million steps as there are ms in one.
    assert f"the edits save ${proof.saved_us / 1e3:.2f} per million steps" in capsys.readouterr().err
    script = tmp_path / "item.py"
    script.write_text(ITEMS)
    trace = str(H200 / "item_each_layer-large-slow.json.gz")
    words = ["fix", "--unsafe", "--trace", trace, "--price", "3.6", str(script)]
    said = CliRunner().invoke(cli, words, catch_exceptions=False).stderr
    assert re.search(r"\(predicted: about [\d.]+ [mµu]s of a step, \$[\d.]+ per million steps\)", said)


def test_edits_that_answer_nothing_that_was_found_predict_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = proof_of("cast_again", ("OPT104",), tmp_path, monkeypatch)
    assert proof.predicted is None
    assert proof.predicted_beside_measured == ""


def test_suggestions_come_in_the_order_of_their_predicted_gains() -> None:
    some = [Suggestion("a", 1, "", True, ("MEM106",)), Suggestion("b", 2, "", True, ("LAU102", "SYN101"))]
    some.append(Suggestion("c", 3, "", True, ("KER109",)))
    ordered = _by_gain(some, {"MEM106": 10.0, "SYN101": 30.0})
    assert [(one.name, gain) for one, gain in ordered] == [("b", 30.0), ("a", 10.0), ("c", 0.0)]


def candidate(name: str, *answers: str, family: str = "kernel") -> Candidate:
    return Candidate(name, family, "whole", name, lambda subject: None, answers=answers)  # type: ignore[arg-type, return-value]


def test_candidates_are_tried_in_the_order_of_predicted_ratios() -> None:
    report = lanewise.explain(H200 / "cast_again-slow.json.gz")
    known = known_from(report)
    casts, chain, none = candidate("casts", "MEM106"), candidate("chain", "LAU102"), candidate("none")
    assert [one.name for one in order([none, casts, chain], known)] == ["chain", "casts", "none"]
    gain = next(f.alone_us_per_step for f in report.findings if f.code == "LAU102")
    assert known.predicted(chain) == pytest.approx(report.regime.step_us / (report.regime.step_us - gain))
    assert known.predicted(none) == 0
    assert Known({}, set(), 0.0).predicted(chain) == 0


FIX = {
    "schema": "lanewise.fix/1",
    "suggestions": [{"name": "cast-once", "answers": ["MEM106"]}, {"name": "cast-once", "answers": ["MEM106"]}],
    "predicted": {
        "changes": [{"change": "MEM106"}],
        "predicted": {"step_us": 731.2, "low_us": 680.0, "high_us": 780.0},
    },
    "comparison": {
        "base": {"step_ns": 1_100_000.0},
        "others": [{"step_ns": 734_000.0}],
        "differences": [{"step": {"verdict": "faster"}}],
    },
}
PLAN = {
    "schema": "lanewise.plan/1",
    "subject": "MLP",
    "attempts": [
        {
            "name": "cuda-graph",
            "predicted": 4.0,
            "timing": {"before_us": 400.0, "after_us": 110.0, "verdict": "faster"},
        },
        {"name": "compile", "predicted": 0.0, "timing": {"before_us": 400.0, "after_us": 90.0, "verdict": "faster"}},
        {"name": "bf16", "predicted": 0.0, "timing": None},
    ],
}


def test_stored_proofs_become_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept").mkdir()
    partly = FIX | {
        "suggestions": [{"name": "cast-once", "answers": ["MEM106"]}, {"name": "flags", "answers": ["OPT101"]}]
    }
    nothing = {"schema": "lanewise.fix/1", "comparison": None}
    for name, data in (("casts", FIX), ("partly", partly), ("plan", PLAN), ("nothing", nothing)):
        (tmp_path / "kept" / f"{name}.json").write_text(json.dumps(data))
    document = tmp_path / "README.md"
    document.write_text(f"# Ours\n{proofs.BEGIN}\nold\n{proofs.END}\nend\n")
    out = tmp_path / "result.json"
    assert proofs.main(["table", str(tmp_path / "kept"), "--out", str(out), "--into", str(document)]) == 0
    text = document.read_text()
    assert "old" not in text
    assert text.endswith("end\n")
    assert "| casts | cast-once (MEM106) | 1.10 ms | 731.2 us (680.0 us to 780.0 us) | 734.0 us | 1.00 |" in text
    assert "| MLP | cuda-graph | 400.0 us | 100.0 us | 110.0 us | 0.91 |" in text
    assert "| MLP | compile | 400.0 us | – | 90.0 us | – |" in text
    assert "| partly | cast-once + flags (MEM106) | 1.10 ms | – | 734.0 us | – |" in text
    told = json.loads(out.read_text())["summary"]
    assert (told["proofs"], told["predicted"], told["interval_holds"]) == (4, 2, 1.0)
    with pytest.raises(SystemExit, match="no place for the table"):
        proofs.put_into("# Ours\n", "table")
