"""Small real jobs under torchrun, recorded by `lanewise run`: what was planted in one rank is found, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import REPOSITORY

pytest.importorskip("torch.distributed")

pytestmark = pytest.mark.slow


def called(*words: str) -> str:
    source = str(REPOSITORY / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def ranks_of(folder: Path, *job: str, record: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `lanewise ranks` says of a job of two ranks."""
    program = str(REPOSITORY / "benchmarks" / "ranks" / "job.py")
    run = ["-m", "lanewise", "run", "--no-explain", "-q", "--active", "8", *record, "-o", str(folder), program, *job]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    called(*torchrun, sys.executable, *run)
    return json.loads(called("-m", "lanewise", "ranks", str(folder), "--json", "--no-cache"))


def late(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["rank"]: row for row in answer["tables"]["ranks"]["rows"] if row["cause"]}


def test_a_rank_that_sleeps_is_named_with_its_delay(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--plant", "sleep", "--late", "1", "--ms", "20")
    found = late(answer)
    assert list(found) == ["1"]
    assert found["1"]["cause"] == "Python"
    assert found["1"]["more"] == pytest.approx(20e6, rel=0.15)


def test_with_stacks_the_function_is_named(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--plant", "python", "--late", "0", "--ms", "20", record=("--stacks",))
    assert list(late(answer)) == ["0"]
    assert answer["tables"]["excess"]["rows"][0]["where"].startswith("burn (job.py:")


def test_a_slow_loader_is_named(tmp_path: Path) -> None:
    found = late(ranks_of(tmp_path, "--plant", "loader", "--late", "1", "--ms", "20"))
    assert {rank: row["cause"] for rank, row in found.items()} == {"1": "data loading"}


def test_a_pipeline_without_a_late_stage_is_even(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--kind", "pipeline")
    assert late(answer) == {}
    templates = [block["template"] for block in answer["statements"]["ranks"]]
    assert templates[0].startswith("The {ranks} ranks are even")
    matched = next(block["values"] for block in answer["statements"]["ranks"] if "transfers" in block["values"])
    assert matched["transfers"]["value"] >= 8 * 8
