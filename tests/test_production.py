"""docs/production.md: every block runs as it stands, in its order, in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import lanewise
from lanewise.tree.tree_file import load
from tests.support.corpus import REPOSITORY

pytest.importorskip("torch")
pytestmark = pytest.mark.slow  # some twenty processes with torch

PAGE = (REPOSITORY / "docs" / "production.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PACKAGES = [*(path for path in sys.path if path.endswith("site-packages")), str(REPOSITORY / "src")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after all blocks of the page have run in it."""
    if shutil.which("curl") is None:
        pytest.skip("the page asks its server with curl")
    folder = tmp_path_factory.mktemp("production")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    binaries = folder / "env" / "bin"
    packages = next((folder / "env").glob("lib/python*/site-packages"))
    (packages / "a_packages.pth").write_text("\n".join(PACKAGES) + "\n")
    (binaries / "lanewise").write_text(f'#!/bin/sh\nexec {binaries / "python"} -m lanewise "$@"\n')
    (binaries / "lanewise").chmod(0o755)
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, door = free.getsockname()[1], other.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWISE_WATCH", "PYTHONPATH"))}
    world = kept | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PORT": str(port),
        "DOOR": str(door),
        "OMP_NUM_THREADS": "1",
    }
    said: list[str] = []
    for kind, title, text in BLOCK.findall(PAGE):
        if title:
            (folder / title).write_text(text)
        elif kind == "bash":
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=folder, env=world, capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
            assert result.returncode == 0 or "lanewise check" in text, f"{text}\n{result.stdout}\n{result.stderr}"
            said.append(result.stdout)
    (folder / "said.txt").write_text("\n".join(said))
    return folder


def test_the_job_and_its_ranks_have_a_tree_each(project: Path) -> None:
    assert {path.name for path in project.glob("*.lw")} == {
        "train.lw", "job-rank0.lw", "job-rank1.lw", "serve.lw", "cache.lw", "cheap.lw", "today.lw",
        "week.lw",
    }  # fmt: skip
    assert load(project / "train.lw").info.step_count >= 50
    assert load(project / "monday.lwtree").info.step_count > load(project / "job-rank0.lw").info.step_count


def test_the_hours_of_a_long_job_are_the_job(project: Path) -> None:
    (hour,) = (project / "week-periods").iterdir()
    assert hour.name.startswith("week-")
    assert load(hour).info.step_count == load(project / "week.lw").info.step_count


def test_the_steps_of_the_server_are_its_answers(project: Path) -> None:
    tree = load(project / "serve.lw")
    watched = tree.info.watched
    assert watched is not None
    assert 115 <= watched.steps_seen <= 121
    # Of every two one, but for those of the recording and before it.
    assert 35 <= watched.steps_watched <= 55
    assert any("answer" in text for text in tree.strings)


def test_its_next_answers_were_recorded_in_full_while_it_ran(project: Path) -> None:
    (trace,) = (project / "serve-traces").iterdir()
    assert len(lanewise.read(trace).steps) == 20
    assert f'"traces": ["{trace}"], "problem": ""' in (project / "said.txt").read_text()


def test_what_left_for_other_tools_is_there(project: Path) -> None:
    assert (
        'lanewise_operator_calls_total{source="serve",operator="aten::linear"}' in (project / "serve.prom").read_text()
    )
    assert (project / "monday.parquet").read_bytes()[:4] == b"PAR1"
    assert (project / "monday.pb.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_a_program_that_becomes_slower_says_so(project: Path) -> None:
    watched = load(project / "cache.lw").info.watched
    assert watched is not None
    assert len(watched.history) >= 12
    said = (project / "said.txt").read_text()
    assert "MEA115  Steps grow longer" in said
    # On a busy machine blocks are left out, and the place may not be certain.
    assert f'lanewise_slowdowns_total{{source="cache"}} {len(watched.slowdowns)}.0' in said
    assert all("forward" in found.path for found in watched.slowdowns)


def test_the_fleet_is_the_sum_of_its_days(project: Path) -> None:
    whole = load(project / "november.lwtree")
    assert whole.info.trees == 3
    days = [load(project / name).info.step_count for name in ("monday.lwtree", "tuesday.lwtree")]
    assert whole.info.step_count == sum(days)


def test_what_was_said_speaks_of_the_program(project: Path) -> None:
    said = (project / "said.txt").read_text()
    assert "2 trees" in said
    assert said.count("Everything ran on the CPU") >= 3
    # Eight runs of one program: on a busy machine a time may stay undecided, and calls never differ.
    assert " calls per step" not in said
