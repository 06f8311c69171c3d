"""What mending a kernel is predicted to gain, beside what it gained on a card."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from benchmarks.machine_code.predicted import pairs
from click.testing import CliRunner

from lanewise.cli.reading import kernel as command
from lanewise.machine_code import cubins
from lanewise.machine_code.accesses import loaded_by_others
from lanewise.machine_code.limiter import limits_of
from lanewise.machine_code.mended import gain_of
from lanewise.measure.kernel.datasheet import peak_called
from tests.machine_code.planted_cuda import DEFECTS
from tests.machine_code.test_planted_cuda import LISTED, TWINS, verdict

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "machine-code"
CARD = peak_called("H200")
assert CARD is not None
PLANTS = {one.name: one for one in (*DEFECTS, *TWINS)}


def test_gains_are_within_a_fifth_of_what_a_card_measured() -> None:
    assert CARD is not None
    found = pairs(json.loads((MEASURED / "measured.json").read_text())["pairs"], CARD)
    assert found["of"] == 20
    assert found["within_not_fitted"] >= 12
    assert found == json.loads((MEASURED / "predicted.json").read_text())["pairs"]


@pytest.mark.parametrize("plant", TWINS, ids=lambda plant: plant.name)
def test_of_a_mended_kernel_no_gain_is_said(plant) -> None:
    assert CARD is not None
    assert gain_of(verdict(plant), prod(plant.grid), CARD) is None


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert CARD is not None
    one = verdict(PLANTS["transpose"])
    assert gain_of(one, 0, CARD) is None  # the grid
    older = replace(one.kernel, code=replace(one.kernel.code, capability=(8, 0)))
    assert gain_of(limits_of(older), 65536, CARD) is None  # the rates
    assert gain_of(limits_of(replace(one.kernel, block=(0, 0, 0))), 65536, CARD) is None
    assert gain_of(verdict(PLANTS["one_sum"]), 1056, CARD) is None  # what meets at one address


def test_the_time_of_a_launch_is_known_without_a_loop_or_told() -> None:
    assert CARD is not None
    straight = gain_of(verdict(PLANTS["one_field"]), 65536, CARD)
    assert straight is not None
    assert straight.seconds == pytest.approx(259e-6, rel=0.2)
    assert straight.mended_seconds == pytest.approx(54.8e-6, rel=0.2)
    looping = verdict(PLANTS["row_sums"])
    unknown, told = (gain_of(looping, 256, CARD, seconds=seconds) for seconds in (0.0, 271e-6))
    assert unknown is not None
    assert told is not None
    assert (unknown.seconds, told.seconds, told.times) == (0.0, 271e-6, unknown.times)


def test_factors_of_a_product_are_loaded_by_other_blocks_as_well() -> None:
    loads = loaded_by_others(LISTED["plain_product"].code)
    names = [LISTED["plain_product"].code.instructions[at].opcode for at in loads]
    assert len(names) == 2
    assert all("LDG" in name for name in names)
    for name in ("transpose", "copy", "chase", "softmax"):
        assert loaded_by_others(LISTED[name].code) == frozenset()


def test_the_command_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.cubin").write_bytes(b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little") + bytes(40))
    monkeypatch.setattr(cubins, "kernels_of", lambda source, *rest, beside: [LISTED["row_sums"]])
    monkeypatch.setattr(cubins, "listings_of", lambda cubin: ("", "", ""))

    def run(*words: str) -> str:
        words = (str(tmp_path / "rows.cubin"), "--block", "256", *words)
        done = CliRunner().invoke(command.kernel, words, catch_exceptions=False, env={"COLUMNS": "120"})
        return " ".join(done.output.split())

    assert "With that fixed" not in run()
    assert "With that fixed, it would be about 4.1 times as fast." in run("--grid", "256", "--card", "H200")
    text = run("--grid", "256", "--card", "H200", "--time", "271us")
    assert re.search(r"times as fast: 66.1 .s a launch instead of 271.0 .s\.", text)
    (found,) = json.loads(run("--grid", "256", "--card", "H200", "--time", "271us", "--json"))["kernels"]
    assert found["mended"]["times_as_fast"] == pytest.approx(4.1, rel=0.01)
    assert found["mended"]["mended_seconds"] == pytest.approx(66.1e-6, rel=0.01)
