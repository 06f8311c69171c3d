"""A file in which nothing of a program was recorded is refused by every command that reads it, as an unreadable one is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lanewise.bundled import bundled_path
from lanewise.tree.model import METRICS, Tree, TreeInfo
from lanewise.tree.tree_file import save
from lanewise.tree.watching.watched import Watched
from tests.support.command import lanewise

MNIST = str(bundled_path("mnist"))

EMPTY = {
    "no rows": '{"schemaVersion": 1, "traceEvents": []}',
    "a list": "[]",
    "names of threads": json.dumps(
        {
            "deviceProperties": [{"id": 0, "name": "GPU"}],
            "traceEvents": [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "main"}}],
        }
    ),
    "the profiler's own time": json.dumps(
        {
            "schemaVersion": 1,
            "traceEvents": [
                {
                    "ph": "X",
                    "cat": "overhead",
                    "name": "Activity Buffer Request",
                    "pid": -1,
                    "tid": 0,
                    "ts": 1,
                    "dur": 2,
                },
                {
                    "ph": "X",
                    "cat": "Trace",
                    "name": "PyTorch Profiler (0)",
                    "pid": "Spans",
                    "tid": "x",
                    "ts": 1,
                    "dur": 2,
                },
            ],
        }
    ),
    "another tool's": json.dumps(
        {
            "traceEvents": [
                {"ph": "X", "cat": "devtools.timeline", "name": "Paint", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
            ]
        }
    ),
}

COMMANDS = {
    "explain": ("explain", "EMPTY"),
    "explain --json": ("explain", "EMPTY", "--json"),
    "explain --no-cache": ("explain", "EMPTY", "--no-cache"),
    "view": ("view", "EMPTY", "-o", "page.html"),
    "view --baseline": ("view", MNIST, "--baseline", "EMPTY", "-o", "page.html"),
    "table": ("table", "EMPTY"),
    "chain": ("chain", "EMPTY"),
    "tree": ("tree", "EMPTY"),
    "tree --baseline": ("tree", MNIST, "--baseline", "EMPTY"),
    "predict": ("predict", "EMPTY", "--all"),
    "ranks": ("ranks", "EMPTY", "other.json"),
    "diff, before": ("diff", "EMPTY", MNIST),
    "diff, after": ("diff", MNIST, "EMPTY"),
    "check, new": ("check", "EMPTY", "--baseline", MNIST),
    "check, baseline": ("check", MNIST, "--baseline", "EMPTY"),
    "baseline": ("baseline", "save", "EMPTY", "-o", "base.json"),
    "export": ("export", "EMPTY", "--to", "perfetto", "-o", "out.json"),
    "sql": ("sql", "EMPTY", "select 1"),
    "fix --trace": ("fix", "--trace", "EMPTY", "program.py"),
}


def refused(folder: Path, words: tuple[str, ...], name: str, said: str) -> None:
    before = sorted(folder.iterdir())
    done = lanewise(*(name if word == "EMPTY" else word for word in words), cwd=folder)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert name in done.stderr
    assert said in done.stderr
    assert sorted(folder.iterdir()) == before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lanewise.toml").write_text('[budget]\nlaunches = { max_increase = "10 %" }\n')
    (tmp_path / "program.py").write_text("import torch\n")
    (tmp_path / "other.json").write_text(EMPTY["a list"])
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_answers_from_a_trace_that_holds_nothing(project: Path, words: tuple[str, ...]) -> None:
    (project / "trace.json").write_text(EMPTY["no rows"])
    refused(project, words, "trace.json", "no step, no operator and no device work: record")


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_whatever_else_stands_in_it(project: Path, text: str) -> None:
    (project / "trace.json").write_text(text)
    for _ in range(2):  # the second time from the kept copy
        refused(project, ("explain", "EMPTY"), "trace.json", "no step, no operator and no device work")


def test_one_row_of_a_program_is_something(project: Path) -> None:
    for category in ("cpu_op", "python_function", "cuda_runtime", "kernel", "user_annotation"):
        row = {"ph": "X", "cat": category, "name": "one", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
        (project / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [row]}))
        assert lanewise("explain", "trace.json", cwd=project).returncode == 0, category


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "EMPTY"),
        ("tree", "EMPTY"),
        ("tree", "EMPTY", "--to", "prometheus"),
        ("tree", "EMPTY", "--baseline", "EMPTY"),
        ("diff", "EMPTY", "other.lw"),
        ("diff", "EMPTY", "other.lw", "--contexts"),
        ("diff", "trees", "trees"),
        ("check", "EMPTY", "--baseline", "other.lw"),
    ],
    ids=" ".join,
)
def test_nor_from_a_tree_of_a_process_in_which_nothing_ran(project: Path, words: tuple[str, ...]) -> None:
    none = np.empty(0, dtype=np.int64)
    tree = Tree(
        parent=none, kind=none, phase=none, name=none, detail=none, forward=none, strings=[""],
        metrics=dict.fromkeys(METRICS, none), info=TreeInfo(watched=Watched()),
    )  # fmt: skip
    (project / "trees").mkdir()
    for name in ("run.lw", "other.lw", "trees/run.lw"):
        save(tree, project / name)
    refused(project, words, "run.lw", "no operator ran while it was watched")
