"""Source lines: only .py files of the program below the given folder, within bounds, and nothing a trace could ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lanewise.diagnose.explain import facts_of
from lanewise.show.page import source_lines
from lanewise.show.page.packing import unpack
from lanewise.show.page.payload import tree_block
from lanewise.show.page.source_lines import SourceLines
from tests.support.builder import TraceBuilder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "program"
    (root / "model").mkdir(parents=True)
    (root / "train.py").write_text("".join(f"line {i}\n" for i in range(1, 61)))
    (root / "model" / "net.py").write_text("class Net:\n    pass\n")
    (tmp_path / "secret.py").write_text("password = 'hunter2'\n")
    (root / "secret.txt").write_text("hunter2\n")
    return root


def test_lines_around_the_one_that_a_frame_names(folder: Path) -> None:
    found, omitted = SourceLines(folder).excerpts(["train.py(12): main", "model/net.py(1): Net"])
    assert omitted == {}
    excerpt = found["train.py(12): main"]
    assert (excerpt.first, excerpt.line) == (9, 12)
    assert excerpt.lines[excerpt.line - excerpt.first] == "line 12"
    assert excerpt.lines[-1] == "line 36"
    assert found["model/net.py(1): Net"].lines == ["class Net:", "    pass"]


def test_an_absolute_name_below_the_folder_is_the_same_file(folder: Path) -> None:
    name = f"{folder}/train.py(60): end"
    assert SourceLines(folder).excerpts([name])[0][name].lines[-1] == "line 60"


def refused(folder: Path, file: str) -> dict[str, int]:
    found, omitted = SourceLines(folder).excerpts([f"{file}(1): f"])
    assert found == {}
    return omitted


def test_nothing_outside_the_folder_is_read(folder: Path) -> None:
    (folder / "link.py").symlink_to(folder.parent / "secret.py")
    (folder / "inner").symlink_to(folder.parent)
    for file in (
        "../secret.py",
        str(folder.parent / "secret.py"),
        "link.py",
        "inner/secret.py",
        "model/../../secret.py",
    ):
        assert refused(folder, file) == {"outside the folder of the sources": 1}


def test_only_python_files_of_the_program_are_read(folder: Path) -> None:
    for hidden in (".venv/lib/x.py", "node_modules/x.py", "env/site-packages/x.py"):
        path = folder / hidden
        path.parent.mkdir(parents=True)
        path.write_text("x = 1\n")
    (folder / "text.py").symlink_to(folder / "secret.txt")
    assert refused(folder, "secret.txt") == {"not a .py file": 1}
    assert refused(folder, "text.py") == {"not a .py file": 1}
    assert refused(folder, ".venv/lib/x.py") == {"in a hidden folder or an installed package": 1}
    assert refused(folder, "node_modules/x.py") == {"in a hidden folder or an installed package": 1}
    assert refused(folder, "env/site-packages/x.py") == {}  # a library's: nobody expects it
    assert refused(folder, "torch/nn/modules/module.py") == {}


def test_what_is_no_regular_file_is_neither_read_nor_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    (folder / "directory.py").mkdir()
    assert refused(folder, "pipe.py") == {"not a regular file": 1}
    assert sum(refused(folder, "directory.py").values()) == 1
    for file in ("gone.py", "nul\0.py", "a" * 5_000 + ".py"):
        assert refused(folder, file) == {"no such file below the folder of the sources": 1}


def test_lines_that_are_not_there_and_bounds_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, omitted = SourceLines(folder).excerpts(["train.py(999): f", "train.py(0): f", "train.py(-1): f"])
    assert (found, omitted) == ({}, {"the file has no such line any more": 3})
    monkeypatch.setattr(source_lines, "_MOST_EXCERPTS", 5)
    found, omitted = SourceLines(folder).excerpts([f"train.py({i}): f" for i in range(1, 20)])
    assert len(found) == 5
    assert sum(omitted.values()) == 14
    monkeypatch.setattr(source_lines, "_LARGEST_FILE", 100)
    assert sum(SourceLines(folder).excerpts(["train.py(1): f"])[1].values()) == 1


def test_controls_and_direction_marks_are_shown_as_such(folder: Path) -> None:
    (folder / "odd.py").write_bytes("a\tb\u202e\x1b[2J\n".encode() + b"\xff\n" + b"x" * 9_000)
    lines = SourceLines(folder).excerpts(["odd.py(1): f"])[0]["odd.py(1): f"].lines
    assert lines[0] == "a   b\ufffd\ufffd[2J"
    assert lines[1] == "\ufffd"
    assert len(lines[2]) == 240


def test_a_page_holds_no_source_unless_it_was_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    b = TraceBuilder()
    with b.step(), b.frame("train.py(12): main"), b.frame("../secret.py(1): f"), b.op("aten::add"):
        b.launch("kernel")
    facts = facts_of(b.build())
    assert "source" not in unpack(tree_block(facts))[1]
    source = unpack(tree_block(facts, sources=folder))[1]["source"]
    strings = unpack(tree_block(facts, sources=folder))[1]["strings"]
    assert {strings[int(row)] for row in source["excerpts"]} == {"train.py(12): main"}
    assert source["omitted"] == {"outside the folder of the sources": 1}
