"""The commands of the README and of docs/ run as they stand, and the README's Python."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

from lanewise import build_tree
from lanewise.bundled import bundled_path
from lanewise.errors import MissingDependencyError
from lanewise.show.page.html import bundle
from lanewise.tree.tree_file import save
from tests.support.command import lanewise_in_bytes
from tests.support.corpus import REPOSITORY, trace_path
from tests.support.descent import DESCENT
from tests.support.flight_dumps import dump, entry, write_dumps
from tests.support.real_jobs import PIPELINE, job_paths

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY / "src")}
README = (REPOSITORY / "README.md").read_text()
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Those of the README and of all pages of docs/, once each."""
    lines = [line[2:] for document in DOCUMENTS for line in document.read_text().splitlines() if line.startswith("$ ")]
    lines = [line.split("  #")[0].split(" # ")[0].strip() for line in lines]
    return sorted({line for line in lines if line.startswith("lanewise ")})


# What is not run here, by a part of it, and why.
NOT_HERE = {
    "view trace.json.gz$": "serves until it is stopped: tests/show/page/test_server.py",
    "view after.json.gz": "the same",
    "--perfetto": "the same",
    "--snapshot": "a memory snapshot of a GPU: tests/measure/memory",
    "fix .*--apply": "minutes: tests/edit",
    "sweep ": "a recording for each value: tests/sweep",
    "--install-hook": "changes this environment: tests/cli/test_watch_asked.py",
    "run --sample": "a card: tests/capture/sampling",
    "kernel .*": "compiled, which needs Triton: tests/machine_code",
    "plan.json": "a plan of optimize: tests/show/plan",
    "doctor": "three recordings, a process each: tests/cli/test_encodings.py",
}
NEEDS_TORCH = ("run ", "watch ", "fix ")
TRAIN = (
    DESCENT
    + """
model = torch.nn.Linear(16, 4)
optimizer = Descent(model.parameters())
for _ in range(60):
    optimizer.zero_grad()
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project in which every file that documents speak of is there."""
    eager, compiled = (trace_path(f"01_matmul_add_64_warm_{mode}") for mode in ("eager", "compile"))
    shutil.copy(bundled_path("mnist"), tmp_path / "trace.json.gz")
    shutil.copy(trace_path("01_matmul_add_64_cold_eager"), tmp_path / "c.json.gz")
    for name in ("before", "eager", "a"):
        shutil.copy(eager, tmp_path / f"{name}.json.gz")
    for name in ("after", "compile", "b"):
        shutil.copy(compiled, tmp_path / f"{name}.json.gz")
    for name in ("before", "after", "old", "new", "recordings"):
        (tmp_path / name).mkdir()
        shutil.copy(eager if name in ("before", "old") else compiled, tmp_path / name)
    for name in ("traces", "lanewise-out"):
        (tmp_path / name).mkdir()
        for rank, path in enumerate(job_paths(PIPELINE)):
            shutil.copy(path, tmp_path / name / f"train-rank{rank}.json.gz")
    (tmp_path / "dumps").mkdir()
    write_dumps(tmp_path / "dumps", {rank: dump([entry(1)], [0, 1]) for rank in range(2)})
    (tmp_path / "lanewise.toml").write_text("[budget]\nlaunches = 1000\n")
    (tmp_path / "package").mkdir()
    for script in ("train.py", "package/module.py"):
        (tmp_path / script).write_text(TRAIN)
    return tmp_path


def test_there_are_commands_and_reasons_for_those_that_are_not_run() -> None:
    assert len(commands()) >= 40
    for part in NOT_HERE:
        assert any(re.search(part, command) for command in commands()), part


HERE = [command for command in commands() if not any(re.search(part, command) for part in NOT_HERE)]
# The first of each verb is called as a user calls it; a process for each of the others would show the same once more.
FIRST = [next(group) for _, group in groupby(HERE, key=lambda command: command.split()[1])]
RECORDS = ("run ", "watch ")


@pytest.mark.parametrize("command", HERE)
def test_a_command_of_the_documents_runs(command: str, folder: Path) -> None:
    words = shlex.split(command.replace("--step 7", "--step 4"))[1:]
    if command.removeprefix("lanewise ").startswith(NEEDS_TORCH):
        pytest.importorskip("torch")
    if words[0] == "sql":
        pytest.importorskip("duckdb")
    if words[0] == "view":
        try:
            bundle()
        except MissingDependencyError as error:
            pytest.skip(str(error))
    if ".lw" in command:
        tree = build_tree(folder / "trace.json.gz")
        for name in ("train", "before", "after"):
            save(tree, folder / f"{name}.lw")
    if command in FIRST or command.removeprefix("lanewise ").startswith(RECORDS):
        line = [sys.executable, "-m", "lanewise", *words]
        result = subprocess.run(line, cwd=folder, capture_output=True, timeout=300, env=ENVIRONMENT)
    else:
        result = lanewise_in_bytes(*words, cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout or result.stderr or " -o " in command


def test_the_python_example_runs(folder: Path) -> None:
    (code,) = [block for block in python_blocks() if "lanewise.explain" in block]
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    assert b"Host-bound" in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="optimizes a model")
def test_the_example_that_optimizes_runs(folder: Path) -> None:
    (block,) = [block for block in python_blocks() if "lanewise.optimize" in block]
    given = "import lanewise, torch\nmodel = torch.nn.Linear(8, 8).eval()\nexample = torch.randn(4, 8)\n"
    code = given + block.replace('"2m"', '"5s"') + "assert plan.applied\nplan.undo()"
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr.decode()
