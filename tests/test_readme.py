"""The README's commands and its Python example run as they stand, on a bundled trace; its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lanewise.bundled import bundled_path
from tests.support.corpus import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = [line[2:].split("  #")[0].strip() for line in README.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.startswith("lanewise ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(bundled_path("mnist"), tmp_path / "trace.json.gz")
    return tmp_path


def test_there_are_commands() -> None:
    assert len(commands()) >= 7


@pytest.mark.parametrize("command", [c for c in commands() if "trace.json.gz" in c or " rule " in c])
def test_a_command_of_the_readme_runs(command: str, folder: Path) -> None:
    words = shlex.split(command)[1:]
    result = subprocess.run([sys.executable, "-m", "lanewise", *words], cwd=folder, capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout or " -o " in command


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
