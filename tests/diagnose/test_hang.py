"""Who is missing in which collective when a job hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from tests.support.flight_dumps import dump, entry, write_dumps

ALL = [0, 1, 2, 3]


def told(folder: Path, by_rank: Mapping[int, Mapping[str, Any]] | None = None) -> str:
    if by_rank is not None:
        write_dumps(folder, by_rank)
    answer = CliRunner().invoke(cli, ["ranks", str(folder)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.stdout.split())


def test_a_rank_that_has_not_come_is_named_with_what_it_did_last(tmp_path: Path) -> None:
    waits = dump([entry(1), entry(2), entry(3, state="started", line=30)], ALL)
    late = dump([entry(1), entry(2)], ALL)
    said = told(tmp_path, {0: waits, 1: waits, 2: late, 3: waits})
    assert said.startswith(
        "Rank 2 has not come to nccl:all_reduce number 3 of group default_pg; ranks 0, 1, 3 wait there, called in "
        "train_step (train.py:30). The last that rank 2 called in that group is nccl:all_reduce number 2, in train_step "
        "(train.py:12)."
    )


def test_a_rank_without_a_dump_is_no_rank_that_has_not_come(tmp_path: Path) -> None:
    waits = dump([entry(1), entry(2, state="started")], ALL)
    said = told(tmp_path, {0: waits, 1: waits, 3: waits})
    assert said.startswith("Ranks 0, 1, 3 wait in nccl:all_reduce number 2 of group default_pg")
    assert "Of rank 2 there is no dump: they may have ended." in said


def test_ranks_that_call_different_things_are_said_to(tmp_path: Path) -> None:
    one = dump([entry(1), entry(2, state="started")], ALL[:2])
    other = dump([entry(1), entry(2, "nccl:broadcast", state="started")], ALL[:2])
    said = told(tmp_path, {0: one, 1: other})
    assert said.startswith("The ranks do not call the same thing as number 2 of group default_pg: ")
    assert "Rank 0: nccl:all_reduce [[64, 64]]; Rank 1: nccl:broadcast" in said


def test_an_all_reduce_of_other_sizes_is_not_the_same(tmp_path: Path) -> None:
    one, other = (dump([entry(1, state="started", shape=shape)], ALL[:2]) for shape in ((64,), (65,)))
    assert "do not call the same thing" in told(tmp_path, {0: one, 1: other})


def test_where_all_have_come_it_is_not_a_rank(tmp_path: Path) -> None:
    all_there = dump([entry(1), entry(2, state="started")], ALL)
    said = told(tmp_path, dict.fromkeys(ALL, all_there))
    assert said.startswith("All ranks are in nccl:all_reduce number 2")


def test_what_is_over_does_not_hang_even_where_a_ring_has_forgotten_it(tmp_path: Path) -> None:
    short = dump([entry(number) for number in range(7, 10)], ALL[:2])
    long = dump([entry(number) for number in range(1, 10)], ALL[:2])
    said = told(tmp_path, {0: short, 1: long})
    assert said.startswith("The flight recorders of 2 ranks show nothing that hangs")


def test_each_group_stands_by_itself(tmp_path: Path) -> None:
    tp = {"group": "tp", "about": "mesh_tp"}
    waits = dump([entry(1), entry(1, **tp), entry(2, state="started", **tp)], ALL, tp=[0, 1])
    late = dump([entry(1), entry(1, **tp)], ALL, tp=[0, 1])
    rest = dump([entry(1)], ALL)
    said = told(tmp_path, {0: waits, 1: late, 2: rest, 3: rest})
    assert said.startswith("Rank 1 has not come to nccl:all_reduce number 2 of group mesh_tp; rank 0 waits there")
    assert "default_pg" not in said


def test_a_receive_without_its_send(tmp_path: Path) -> None:
    receives = dump([entry(1, "nccl:recv 1<-0", transfer=True, state="started")], ALL[:2])
    sends_nothing = dump([entry(1)], ALL[:2])
    said = told(tmp_path, {0: sends_nothing, 1: receives | {"entries": [entry(1), *receives["entries"]]}})
    assert "Rank 0 has not come to nccl:recv 1<-0" in said
    assert "The last that rank 0 called in that group is nothing." in said


def test_a_subgroup_numbers_its_ranks_anew(tmp_path: Path) -> None:
    pp = {"group": "pp", "about": "mesh_pp", "transfer": True}
    receives = dump([entry(1, "nccl:recv 1<-0", state="started", **pp)], ALL, pp=[2, 3])
    nothing = dump([entry(1)], ALL, pp=[2, 3])
    said = told(tmp_path, {2: nothing, 3: receives})
    assert "Rank 2 has not come to nccl:recv 1<-0" in said


def test_a_dump_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    waits = dump([entry(1, state="started")], ALL[:2])
    write_dumps(tmp_path, {0: waits, 1: waits})
    (tmp_path / "comm_lib_trace_rank_2").write_bytes(b"\x80\x02X\x11\x00\x00\x00collective_seq_idcos\nsystem\n.")
    assert "Left out: " in told(tmp_path)


def test_as_data(tmp_path: Path) -> None:
    write_dumps(tmp_path, {0: dump([entry(1, state="started")], ALL[:2]), 1: dump([], ALL[:2])})
    answer = CliRunner().invoke(cli, ["ranks", str(tmp_path), "--json"])
    row = json.loads(answer.stdout)["tables"]["hangs"]["rows"][0]
    assert (row["missing"], row["there"], row["sequence"]) == ("1", "0", 1)


PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import {dumper}
dist.init_process_group("gloo")
def train_step(x):
    dist.all_reduce(x)
for _ in range(3):
    train_step(torch.ones(8))
if dist.get_rank() == 0:
    waits = dist.all_reduce(torch.ones(16), async_op=True)
time.sleep(1)
with open(os.path.join(sys.argv[1], "fr_rank_" + os.environ["RANK"]), "wb") as file:
    file.write({dumper}())
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dumper", ["_dump_fr_trace", "_dump_fr_trace_json"])
def test_what_torch_writes_of_a_job_that_hangs(dumper: str, tmp_path: Path) -> None:
    flight = pytest.importorskip("torch._C._distributed_c10d")
    if not hasattr(flight, dumper):
        pytest.skip("this torch writes no such dump")
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29613", "WORLD_SIZE": "2"}
    environment |= {"TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    program = PROGRAM.format(dumper=dumper)
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env={**environment, "RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    said = told(tmp_path)
    assert "Rank 1 has not come to gloo:all_reduce number 4 of group default_pg; rank 0 waits there" in said
