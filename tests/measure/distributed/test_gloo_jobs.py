"""Small real jobs under torchrun, recorded by `lanewise run`: what was planted in one rank is found, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
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


def ranks_of(folder: Path, *job: str, record: tuple[str, ...] = (), ranks: int = 2) -> dict[str, Any]:
    """What `lanewise ranks` says of a job of so many ranks."""
    program = str(REPOSITORY / "benchmarks" / "ranks" / "job.py")
    run = ["-m", "lanewise", "run", "--no-explain", "-q", "--active", "8", *record, "-o", str(folder), program, *job]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--no-python"]
    called(*torchrun, sys.executable, *run)
    return json.loads(called("-m", "lanewise", "ranks", str(folder), "--json", "--no-cache"))


def recorded(folder: Path, *launcher: str, job: tuple[str, ...]) -> tuple[int, str]:
    """A job of two ranks under torchrun and `lanewise run`: its exit code, and what it says on standard error."""
    source = str(REPOSITORY / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    run = [sys.executable, "-m", "lanewise", "run", "--active", "8", "-o", str(folder)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *launcher, "--no-python"]
    done = subprocess.run([*torchrun, *run, *job], env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, " ".join(done.stderr.split())


JOB = str(REPOSITORY / "benchmarks" / "ranks" / "job.py")


def test_a_recorded_job_ends_with_what_its_ranks_say_together(tmp_path: Path) -> None:
    code, said = recorded(tmp_path, "--standalone", job=(JOB, "--plant", "sleep", "--late", "1", "--ms", "20"))
    assert code == 0, said[-3000:]
    assert said.count("Rank 1 is late: its own work takes ") == 1
    assert "The late rank, rank 1, by itself" in said
    assert said.count("evidence and tables") == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert (tmp_path / "job-rank0.ranks.json").exists()


def test_two_nodes_with_a_shared_folder_end_with_one_report(tmp_path: Path) -> None:
    """Two launchers, each of which starts one rank, as on two machines."""
    source = str(REPOSITORY / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node),
             "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", "29517", "--no-python",
             sys.executable, "-m", "lanewise", "run", "--active", "8", "-o", str(tmp_path), JOB],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for node in (0, 1)
    ]  # fmt: skip
    first, second = (" ".join(node.communicate(timeout=300)[1].split()) for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], first[-3000:]
    assert "The 2 ranks are even" in first
    assert "ranks are even" not in second


DIES = """
import os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(60):
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 1:
    {end}
"""


@pytest.mark.parametrize(
    ("end", "said_of_it"),
    [
        ("os._exit(0)", "Rank 1 died after it had written its trace."),
        ("os.kill(os.getpid(), 9)", "Rank 1 died after it had written its trace."),
        ("raise RuntimeError('at the end')", ""),
    ],
)
def test_a_rank_that_dies_costs_neither_the_report_nor_a_wait(end: str, said_of_it: str, tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(DIES.format(end=end))
    begun = time.monotonic()
    _, said = recorded(tmp_path / "out", "--standalone", job=(str(program),))
    assert time.monotonic() - begun < 100
    assert "The 2 ranks are even" in said or "is late" in said, said[-3000:]
    assert said_of_it in said


def test_a_rank_that_dies_before_it_records_is_named(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    # The other one finds out in its next collective, and ends by that error.
    leaves = "    if step == 2 and dist.get_rank() == 1:\n        os._exit(0)\n"
    program.write_text(DIES.format(end="pass").replace("    model(", f"{leaves}    model("))
    _, said = recorded(tmp_path / "out", "--standalone", job=(str(program),))
    assert "rank 1 died before it wrote a trace" in said.lower(), said[-3000:]


def late(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["rank"]: row for row in answer["tables"]["ranks"]["rows"] if row["cause"]}


def test_a_rank_that_sleeps_is_named_with_its_delay(tmp_path: Path) -> None:
    noted = tmp_path / "truth.json"
    sleeps = ("--plant", "sleep", "--late", "1", "--ms", "20", "--truth", str(noted), "--turns", "0")
    found = late(ranks_of(tmp_path / "traces", *sleeps))
    assert list(found) == ["1"]
    assert found["1"]["cause"] == "Python"
    # On a busy machine a sleep takes longer than it is asked to.
    took = median(json.loads((tmp_path / "truth-1.json").read_text())["plant_ms"])
    assert found["1"]["more"] == pytest.approx(took * 1e6, rel=0.15)


def test_with_stacks_the_function_is_named(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--plant", "python", "--late", "0", "--ms", "20", record=("--stacks",))
    assert list(late(answer)) == ["0"]
    assert answer["tables"]["excess"]["rows"][0]["where"].startswith("burn (job.py:")


def test_a_slow_loader_is_named(tmp_path: Path) -> None:
    found = late(ranks_of(tmp_path, "--plant", "loader", "--late", "1", "--ms", "20"))
    assert {rank: row["cause"] for rank, row in found.items()} == {"1": "data loading"}


def test_a_rank_of_fsdp_that_sleeps_is_named(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--kind", "fsdp", "--plant", "sleep", "--late", "1", "--ms", "30")
    assert list(late(answer)) == ["1"]
    assert late(answer)["1"]["cause"] == "Python"
    assert answer["tables"]["excess"]["rows"][0]["more"] == pytest.approx(30e6, rel=0.15)
    assert {row["kind"] for row in answer["tables"]["communication"]["rows"]} >= {"all-gather"}


def test_a_pipeline_without_a_late_stage_is_even(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--kind", "pipeline")
    assert late(answer) == {}
    templates = [block["template"] for block in answer["statements"]["ranks"]]
    assert templates[0].startswith("The {ranks} ranks are even")
    matched = next(block["values"] for block in answer["statements"]["ranks"] if "matched" in block["values"])
    number, what = matched["matched"]["value"].split()
    assert (int(number) >= 8 * 8, what) == (True, "transfers")


def test_tensor_parallel_ranks_with_python_on_one_of_them(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--kind", "tensor", "--plant", "python", "--late", "0", "--ms", "30")
    assert {rank: row["cause"] for rank, row in late(answer).items()} == {"0": "Python"}
    assert "all-reduce" in {row["kind"] for row in answer["tables"]["communication"]["rows"]}


def test_expert_parallel_ranks_with_copies_on_one_of_them(tmp_path: Path) -> None:
    answer = ranks_of(tmp_path, "--kind", "expert", "--plant", "copy", "--late", "1", "--ms", "30")
    assert {rank: row["cause"] for rank, row in late(answer).items()} == {"1": "copies"}
    assert "all-to-all" in {row["kind"] for row in answer["tables"]["communication"]["rows"]}


def test_four_ranks_both_tensor_parallel_and_sharded_with_one_asleep(tmp_path: Path) -> None:
    """Two groups of each kind: the late rank keeps the one it is with waiting, and that one its own others."""
    answer = ranks_of(tmp_path, "--kind", "mixed", "--plant", "sleep", "--late", "2", "--ms", "60", ranks=4)
    assert {rank: row["cause"] for rank, row in late(answer).items()} == {"2": "Python"}
    assert late(answer)["2"]["more"] == pytest.approx(60e6, rel=0.15)
    assert {"all-reduce", "all-gather"} <= {row["kind"] for row in answer["tables"]["communication"]["rows"]}
