"""What `lanewise run` leaves in a folder is opened by every other verb: the folder, and the file in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lanewise.cli.main import cli
from lanewise.show.page.html import bundle
from tests.support.corpus import REPOSITORY

pytest.importorskip("torch")

PROGRAM = """
import torch
a = torch.randn(100, 100)
b = a @ a
c = (b + a).relu().sum()
"""
TRAIN = """
import torch
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
"""

# `{it}` is the folder or the file, `{out}` a file that is not there yet.
VERBS = {
    "explain": "explain {it}",
    "view": "view {it} -o {out}.html",
    "table": "table {it}",
    "tree": "tree {it}",
    "diff": "diff two {it}",
    "check": "check {it} --baseline two",
    "baseline": "baseline save {it} -o {out}.json",
    "chain": "chain {it}",
    "export": "export {it} --to perfetto -o {out}.json.gz",
    "sql": "sql {it} select+count(*)+from+events",
    "fix": "fix --trace {it} program.py",
    "predict": "predict {it} --apply host=2x",
    "ranks": "ranks {it}",
}
WITHOUT_TRACE = {"tour", "kernel", "mcp", "run", "sweep", "watch", "rule", "doctor", "demo"}
ONE_IS_NO_JOB = {"ranks"}


def shell_environment(folder: Path) -> dict[str, str]:
    """A `lanewise` on the PATH that is this one."""
    commands = folder / "bin"
    commands.mkdir()
    (commands / "lanewise").write_text(f'#!/bin/sh\nexec {sys.executable} -m lanewise "$@"\n')
    (commands / "lanewise").chmod(0o755)
    source = str(REPOSITORY / "src")
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which `lanewise run` was called, twice into one folder and once into another."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "lanewise.toml").write_text("[budget]\noperators = 1000\n")
    environment = shell_environment(folder)
    for out in ("one", "two", "two"):
        words = ["lanewise", "run", "-o", out, "program.py"]
        subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True, timeout=120)
    assert (folder / "one" / "program.report.json").exists()
    return folder


def lanewise(line: str) -> Result:
    return CliRunner().invoke(cli, [word.replace("+", " ") for word in line.split()], standalone_mode=False)


def test_every_verb_that_opens_a_trace_is_tried_here() -> None:
    assert {*VERBS, *WITHOUT_TRACE} == set(cli.list_commands(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_opens_the_folder_and_the_file(
    verb: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "sql":
        pytest.importorskip("duckdb")
    if verb == "view":
        try:
            bundle()
        except Exception as error:
            pytest.skip(str(error))
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "200")  # both names of it fit in every line
    said: list[str] = []
    for it in ("one", "one/program.json.gz"):
        result = lanewise(VERBS[verb].format(it=it, out=tmp_path / it.replace("/", "-")))
        if verb in ONE_IS_NO_JOB:
            assert "two or more" in str(result.exception)
        else:
            assert result.exception is None, (it, result.exception, result.output)
        said.append(result.output)
    assert len(said[0].splitlines()) == len(said[1].splitlines())


@pytest.mark.parametrize("line", ["diff two one", "check two --baseline one", "explain two"])
def test_a_folder_of_two_recordings_is_two_runs(line: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    result = lanewise(line)
    assert result.exception is None, (result.exception, result.output)


def test_ranks_of_two_recordings_sees_two_traces(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    # They are no ranks of one job; that is what it says, and not that a report is no trace.
    assert "report" not in str(lanewise("ranks two").exception)


def test_the_python_api_opens_the_folder(project: Path) -> None:
    import lanewise

    trace = lanewise.read(project / "one")
    assert trace.reading.source == str(project / "one" / "program.json.gz")
    assert lanewise.explain(trace).verdict
    assert lanewise.diff(project / "two", project / "one")


@pytest.mark.slow
def test_the_recipe_of_the_documentation_works(tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```bash\n(for round in.*?)```", (REPOSITORY / "docs" / "ci.md").read_text(), re.DOTALL)
    shorter = recipe.replace("1 2 3 4 5 6", "1 2")
    assert shorter != recipe
    environment = shell_environment(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "lanewise.toml").write_text('[budget]\noperators = { max_increase = "1 %" }\n')
    git = "git -c user.name=t -c user.email=t@example.org"
    setup = (
        f"git init -q base && cp train.py base && cd base && git add . && {git} commit -qm base && git rev-parse HEAD"
    )
    made = subprocess.run(setup, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    done = subprocess.run(
        ["bash", "-e", "-c", shorter],
        cwd=tmp_path,
        env={**environment, "MERGE_BASE": made.stdout.strip()},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Within budget in 2 runs" in done.stdout
    assert len(list((tmp_path / "new").glob("*.report.json"))) == 2
