"""What is typed first after `lanewise run` is answered with what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lanewise.cli.recording.first_words import what_to_type


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "start.sh").write_text("#!/bin/sh\npython train.py\n")
    (tmp_path / "tool").write_text(f"#!{sys.executable}\nprint(1)\n")
    (tmp_path / "job").write_text("#!/usr/bin/env bash\npython train.py\n")
    (tmp_path / "explore.ipynb").write_text("{}")
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01")
    for name in ("accelerate", "deepspeed", "mpirun", "srun", "uv"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("python train.py --lr 1", "lanewise run train.py --lr 1"),
        ("python3.12 train.py", "lanewise run train.py"),
        (f"{sys.executable} -m pkg.train", "lanewise run -m pkg.train"),
        ("python -u train.py", "python -u -m lanewise run train.py"),
        ("python3 -W error -m pytest tests", "python3 -W error -m lanewise run -m pytest tests"),
        ("pytest tests -k fast", "lanewise run -m pytest tests -k fast"),
        ("train", "lanewise run train.py"),
        ("json.tool data.json", "lanewise run -m json.tool data.json"),
        ("accelerate launch --num_processes 2 train.py --lr 1",
         "accelerate launch --num_processes 2 -m lanewise run train.py --lr 1"),
        ("accelerate launch -m pkg.train", "accelerate launch -m lanewise run -m pkg.train"),
        ("deepspeed --num_gpus 2 train.py --x", "deepspeed --num_gpus 2 --module lanewise run train.py --x"),
        ("mpirun -np 2 python train.py", "mpirun -np 2 lanewise run train.py"),
        ("srun -n 4 python -u train.py", "srun -n 4 python -u -m lanewise run train.py"),
        ("uv run train.py", "uv run lanewise run train.py"),
        ("env A=1 python train.py", "env A=1 lanewise run train.py"),
    ],
)  # fmt: skip
def test_the_line_ends_with_what_to_type(typed: str, answer: str) -> None:
    said = what_to_type(typed.split(), "run")
    assert said.rpartition(": ")[2] == answer
    assert "\n" not in said
    assert what_to_type(typed.split(), "watch").endswith(answer.replace("lanewise run", "lanewise watch"))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("start.sh", "start.sh is a shell script: put lanewise run in it where it says python"),
        ("job", "job is a shell script"),
        ("bash start.sh", "start.sh is a shell script"),
        ("explore.ipynb", "explore.ipynb is a notebook: jupyter nbconvert --to script explore.ipynb, then"),
        ("program", "program is no Python program"),
        ("python", "which program? lanewise run SCRIPT [ARGS]"),
        ("accelerate launch", "every rank is recorded by itself: accelerate launch ... -m lanewise run SCRIPT"),
        ("ls -l", "ls is no Python program"),
        ("nothing.py", "no such script: nothing.py"),
    ],
)
def test_what_is_no_program_is_said(typed: str, said: str) -> None:
    assert what_to_type(typed.split(), "run").startswith(said)


@pytest.mark.parametrize("typed", ["train.py", "./train.py --lr 1", "tool", "torchrun --nproc-per-node 2 train.py"])
def test_a_program_is_taken_as_it_is(typed: str) -> None:
    assert what_to_type(typed.split(), "run") == ""


def test_it_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "lanewise", "run", "python", "train.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lanewise: python is not needed: lanewise run train.py\n"


def test_a_runner_that_is_installed_as_a_module_still_starts_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.cli.recording.first_words._module", lambda name: name)
    assert what_to_type(["uv", "run", "train.py"], "run").endswith(": uv run lanewise run train.py")
    assert what_to_type(["pytest", "tests"], "run").endswith(": lanewise run -m pytest tests")
