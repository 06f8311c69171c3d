"""`lanewise explain` on trees: one screen, other formats, bad input."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.errors import LanewiseError
from lanewise.show.report.one_screen import LINES
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import dumps, load, save
from tests.support.corpus import REPOSITORY

WATCHED = REPOSITORY / "tests" / "data" / "watched"


class Said(NamedTuple):
    exit_code: int
    output: str


def run(*arguments: object) -> Said:
    result = CliRunner().invoke(cli, [str(each) for each in arguments])
    if isinstance(result.exception, LanewiseError):
        return Said(result.exception.exit_code, f"lanewise: {result.exception}")
    return Said(result.exit_code, result.output)


@pytest.mark.parametrize("path", sorted(WATCHED.glob("*.lw")), ids=lambda path: path.stem)
@pytest.mark.parametrize("width", ["60", "100", "160"])
def test_one_screen(path: Path, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    result = run("explain", path)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) < LINES
    assert max(map(len, lines)) <= int(width)
    assert "--full" in result.output


def test_what_the_first_screen_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = run("explain", WATCHED / "optimizer_loop.lw").output
    for said in (
        "a tree of 1,839 contexts",
        "69 steps",
        "Host-bound",
        "[OPT101]",
        "at most",
        "lanewise tree ",
        "Fix: ",
    ):
        assert said in text
    assert "lanewise view" not in text


def test_in_full_with_what_only_a_trace_can_tell() -> None:
    result = run("explain", WATCHED / "ckpt.lw", "-v")
    assert result.exit_code == 0
    for said in ("OPT105", "Verify:", "Repeated operators", "What ran", "only a trace can tell", "lanewise tree"):
        assert said in result.output
    # Those checks stand together, with what they have in common said once.
    assert result.output.count("only a trace") == 1


def test_other_formats(tmp_path: Path) -> None:
    path = WATCHED / "optimizer_loop.lw"
    report = json.loads(run("explain", path, "--json").output)
    assert report["schema"] == "lanewise.report/2"
    assert report["source"]["contexts"] == 1839
    assert "OPT101" in {finding["code"] for finding in report["findings"]}
    for more in ([], ["--full"]):
        markdown = run("explain", path, "--format", "md", *more).output
        assert "a tree of 1,839 contexts" in markdown
        assert "OPT101" in markdown
        assert "lanewise view" not in markdown
    out = tmp_path / "report.sarif"
    assert run("explain", path, "--format", "sarif", "-o", out).exit_code == 0
    assert "OPT101" in out.read_text()


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    whole = (WATCHED / "ckpt.lw").read_bytes()
    for name, data in {
        "cut.lw": whole[: len(whole) // 2],
        "head.lw": whole[:8],
        "flipped.lw": whole[:200] + bytes(b ^ 255 for b in whole[200:400]) + whole[400:],
        "version.lw": whole[:7] + b"\x09" + whole[8:],
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        result = run("explain", path)
        assert result.exit_code == 3, (name, result.exit_code, result.output)
        assert len(result.output.strip().splitlines()) == 1
        assert name in result.output


def test_a_tree_among_traces_is_refused() -> None:
    trace = REPOSITORY / "tests" / "data" / "tree" / "plain.json.gz"
    result = run("explain", WATCHED / "ckpt.lw", trace)
    assert result.exit_code == 2
    assert "explain trees and traces apart" in result.output
    assert run("explain", WATCHED / "ckpt.lw", "--step-time", "5").exit_code == 2


def test_names_of_a_stranger_do_not_reach_the_terminal(tmp_path: Path) -> None:
    tree = load(WATCHED / "optimizer_loop.lw")
    hostile = "\x1b[31m<img src=x>\x07\u202e"
    strings = [text if text == "" or "Optimizer" in text else text.replace("main", hostile) for text in tree.strings]
    bad = Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=strings, metrics=tree.metrics, info=dataclasses.replace(tree.info, source=hostile),
    )  # fmt: skip
    path = tmp_path / "bad.lw"
    save(bad, path)
    for arguments in ([], ["--full"], ["--format", "md"]):
        result = run("explain", path, *arguments)
        assert result.exit_code == 0, result.output
        assert not set("\x1b\x07\u202e") & set(result.output)


def test_several_trees_are_one_program(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.lw").write_bytes(dumps(load(WATCHED / "optimizer_loop.lw")))
    result = run("explain", tmp_path / "0.lw", tmp_path / "1.lw")
    assert result.exit_code == 0
    assert "138 steps" in result.output
    assert "2 trees" in result.output
    assert "lanewise explain" not in result.output
