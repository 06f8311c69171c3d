"""Kernels compiled here, for cards that are not: needs triton, and no GPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("triton")

from click.testing import CliRunner

from lanewise.cli.reading.kernel import kernel
from lanewise.errors import InputError, UsageError
from lanewise.kernels.rows import norm_forward_kernels
from tests.machine_code import planted

HERE = Path(planted.__file__)


def run(*words: str) -> str:
    done = CliRunner().invoke(kernel, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("plant", planted.PLANTS, ids=lambda plant: plant.name)
def test_what_is_planted_is_found_in_what_this_compiler_makes(plant: planted.Plant) -> None:
    text = run(f"{HERE}::{plant.kernel.fn.__name__}", *plant.words, "--json")
    (found,) = json.loads(text)["kernels"]
    first = found["limits"][0]
    assert (first["name"], first["defect"]) == (plant.limiter, plant.defect)
    assert found["threads"] > 0
    assert found["file"].endswith(f"planted.py::{plant.kernel.fn.__name__}")


def test_where_triton_interprets_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    words = ["x=*fp32", "out=*fp32", "n=i32", "T=1024"]
    assert "Limited by memory" in run(f"{HERE}::copy", *(word for one in words for word in ("--arg", one)))


NORM = {
    **dict.fromkeys(("x_ptr", "r_ptr", "w_ptr", "b_ptr", "y_ptr", "s_ptr"), "*fp16"),
    **dict.fromkeys(("mean_ptr", "rstd_ptr"), "*fp32"),
    "rows": "i32",
    "EPS": "1e-5",
    "RMS": "False",
    "ADD": "False",
    "HAS_W": "True",
    "HAS_B": "True",
    "SAVE": "False",
    "ROWS": "1",
    "BLOCK": "1024",
    "FULL": "True",
    **dict.fromkeys(("LEAN", "EARLY", "ONCE", "STREAM", "EVEN"), "False"),
}


@pytest.mark.parametrize(("columns", "limiter"), [(1001, "narrow loads"), (1000, "memory")])
def test_rows_of_a_multiple_of_8_values_are_read_16_bytes_at_a_time(columns: int, limiter: str) -> None:
    """Triton tells multiples of 16 only; 1000 columns of half precision were read value by value."""
    length = dict.fromkeys(("COLS", "X_STRIDE", "R_STRIDE"), str(columns))
    words = [f"{name}={value}" for name, value in (NORM | length).items()]
    text = run(f"{norm_forward_kernels.__file__}::_norm_rows", *(word for one in words for word in ("--arg", one)))
    assert f"Limited by {limiter}" in text


def test_what_is_not_said_of_arguments_is_asked_for() -> None:
    with pytest.raises(UsageError, match="missing: out, n, T"):
        run(f"{HERE}::copy", "--arg", "x=*fp32")
    with pytest.raises(UsageError, match="the kernel has no y, only x, out, n, T"):
        run(
            f"{HERE}::copy",
            *(word for one in ("x=*fp32", "out=*fp32", "n=i32", "T=64", "y=i32") for word in ("--arg", one)),
        )
    with pytest.raises(UsageError, match="no kernel gemm in the file; it has chase"):
        run(f"{HERE}::gemm")


def test_a_file_that_fails_is_quoted_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('no such table')\n")
    with pytest.raises(InputError, match=r"cannot be compiled: ValueError: no such table"):
        run(f"{tmp_path / 'broken.py'}::kernel")


def test_the_guide_prints_what_the_command_prints() -> None:
    text = (HERE.parents[2] / "docs" / "inside-a-kernel.md").read_text()
    examples = re.findall(r"^\$ lanewise kernel (examples/\S+::.*)\n((?:.+\n)+?)```", text, re.MULTILINE)
    assert len(examples) == 4
    for command, printed in examples:
        words = shlex.split(command)
        said = run(str(HERE.parents[2] / words[0]), *words[1:])
        limit = re.search(r"Limited by [a-z ]+:", printed)
        assert limit is not None
        assert limit[0] in said
