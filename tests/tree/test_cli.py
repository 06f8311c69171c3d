"""`lanewise tree`, as it is called."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lanewise.cli.reading.tree import tree
from lanewise.errors import LanewiseError, UsageError
from lanewise.tree.build import build_tree
from lanewise.tree.tree_file import load, save
from tests.support.builder import TraceBuilder
from tests.tree.samples import CASES

TRACE = str(CASES / "plain.json.gz")
OTHER = str(CASES / "checkpoint.json.gz")


def run(*arguments: str) -> Result:
    """The command in this process; errors of ours are raised, as `main` expects them."""
    result = CliRunner().invoke(tree, [*arguments, "--no-cache"], standalone_mode=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved tree."""
    path = tmp_path_factory.mktemp("tree") / "plain.lwtree"
    run(TRACE, "--to", "tree", "-o", str(path))
    return str(path)


def test_the_default_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    result = run(TRACE)
    assert result.exit_code == 0
    assert "plain.json.gz" in result.output
    assert "step (record_cases.py:79)" in result.output
    assert max(map(len, result.output.splitlines())) <= 110


@pytest.mark.parametrize("view", ["top-down", "bottom-up", "modules", "flat"])
def test_views_as_json_have_one_total(view: str) -> None:
    document = json.loads(run(TRACE, "--view", view, "--json").output)
    assert document["schema"] == "lanewise.tree/1"
    rows = document.get("nodes") or document["rows"]
    assert sum(row["device"] for row in rows) == document["info"]["device_total"]


@pytest.mark.parametrize("by", ["kernel", "operator", "module", "class", "line", "file", "function", "phase"])
def test_tables(by: str) -> None:
    assert by in run(TRACE, "--by", by, "-n", "3").output


def test_filters_and_options() -> None:
    only = json.loads(run(TRACE, "--phase", "backward", "--json").output)
    assert {row["phase"] for row in only["nodes"] if row["device"]} == {"backward"}
    matched = json.loads(run(TRACE, "--match", "GELU", "--json").output)
    assert 0 < sum(row["device"] for row in matched["nodes"]) < only["info"]["device_total"]
    assert "only step 1" in run(TRACE, "--step", "1").output
    assert "only stream 7" in run(TRACE, "--stream", "7").output
    assert "_call_impl" in run(TRACE, "--frames", "--json").output
    assert "_call_impl" not in run(TRACE, "--json").output
    assert run(TRACE, "--metric", "host", "--depth", "2").exit_code == 0
    assert "autograd threads" in run(TRACE, "--placement", "ran").output


def test_without_a_device_host_time_is_shown(tmp_path: Path) -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): main"), b.op("aten::mm", head=40):
        pass
    save(build_tree(b.build()), tmp_path / "cpu.lwtree")
    output = run(str(tmp_path / "cpu.lwtree")).output
    assert "main (train.py:1)" in output
    assert "41.0 us" in output


def test_a_saved_tree_shows_the_same(saved: str) -> None:
    assert load(saved).info.source == "plain.json.gz"
    assert run(saved).output == run(TRACE).output
    with pytest.raises(UsageError, match="can only be chosen from its trace"):
        run(saved, "--step", "1")


def test_several_are_added_up_and_one_can_be_taken_from_another(saved: str) -> None:
    both = json.loads(run(saved, TRACE, "--json").output)
    assert both["info"]["runs"] == 2
    change = run(OTHER, "--baseline", saved).output
    assert "checkpoint" in change
    assert re.search(r"^[-+]\d[\d.]* \w+ of device time · the difference to ", change, re.MULTILINE)
    same = json.loads(run(TRACE, "--baseline", saved, "--json").output)
    assert same["nodes"] == []


@pytest.mark.parametrize("format_", ["speedscope", "collapsed", "hatchet", "json", "pprof", "tree"])
def test_exports_to_files(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    run(TRACE, "--to", format_, "-o", str(path))
    data = path.read_bytes()
    assert data
    if format_ == "pprof":
        assert gzip.decompress(data)
    with pytest.raises(UsageError, match="add --force"):
        run(TRACE, "--to", format_, "-o", str(path))
    run(TRACE, "--to", format_, "-o", str(path), "--force")
    assert path.read_bytes() == data


def test_binary_goes_through_a_pipe(tmp_path: Path) -> None:
    piped = run(TRACE, "--to", "pprof").stdout_bytes
    run(TRACE, "--to", "pprof", "-o", str(tmp_path / "x"))
    assert piped == (tmp_path / "x").read_bytes()


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    for arguments, message in (
        ((TRACE, "-o", str(tmp_path / "x")), "add --to"),
        ((TRACE, "--by", "line", "--to", "pprof"), "flat view"),
        ((TRACE, "--step", "99"), "no step 99"),
        ((str(tmp_path / "absent.lwtree"),), "absent"),
    ):
        with pytest.raises(LanewiseError, match=message):
            run(*arguments)
    assert run(TRACE, "--phase", "sideways").exit_code == 2


def test_a_narrow_terminal_names_the_function_rather_than_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): main"), b.op("aten::mm", head=40):
        pass
    save(build_tree(b.build()), tmp_path / "cpu.lwtree")
    monkeypatch.setenv("COLUMNS", "80")
    assert "main (train.py:1)" in run(str(tmp_path / "cpu.lwtree")).output
