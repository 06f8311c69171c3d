"""Energy and money, beside the step and beside every gain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lanewise.bundled import bundled_path
from lanewise.cli.main import cli
from lanewise.diagnose.explain import explain, facts_of
from lanewise.diagnose.settings import Settings, load_settings
from lanewise.errors import UsageError
from lanewise.report.gain import cost_text, saves_text
from lanewise.report.model import Cost, Report
from lanewise.report.priced import cost_of
from lanewise.show.report.one_screen import LINES
from lanewise.trace.metadata import Energy
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder

PRICE = 3.6  # dollars: a thousandth of one a second


def report(price: float = PRICE, **recorded: object) -> Report:
    trace = read(bundled_path("mnist"))
    trace.metadata["lanewise"] = {"schema": 1, **recorded}
    return explain(trace, settings=Settings(price=price))


def test_a_step_costs_what_the_counter_and_the_price_say() -> None:
    cost = cost_of(2500.0, Energy(joules=700.0, steps=1000, seconds=2.5), PRICE)
    assert cost == Cost(joules_per_step=0.7, watts=280.0, dollars_per_hour=3.6, dollars_per_million_steps=2.5)
    assert cost_text(cost) == "0.7 J per step (280 W), $2.50 per million steps ($3.60 per hour)"
    # Steps that were counted while something slowed them down drew the same power for longer.
    slowed = cost_of(2500.0, Energy(joules=1400.0, steps=1000, seconds=5.0), 0.0)
    assert slowed == Cost(joules_per_step=0.7, watts=280.0, dollars_per_hour=0.0, dollars_per_million_steps=0.0)
    assert cost_of(2500.0, None, 0.0) is None
    assert cost_of(0.0, None, PRICE) is None
    assert cost_text(cost_of(2500.0, None, PRICE)) == "$2.50 per million steps ($3.60 per hour)"
    assert cost_text(cost_of(2500.0, Energy(joules=0.05, steps=100, seconds=0.25), 0.0)) == "0.5 mJ per step (0 W)"


def test_every_gain_says_what_it_saves() -> None:
    found = report(energy={"joules": 500.0, "steps": 1000, "seconds": 2.0})
    assert found.cost is not None
    assert found.cost.watts == 250.0
    gains = [finding for finding in found.findings if finding.recoverable_us_per_step > 0]
    assert gains
    for finding in found.findings:
        us = finding.recoverable_us_per_step
        assert finding.joules_per_step == pytest.approx(250.0 * us / 1e6, rel=0.01)
        assert finding.dollars_per_million_steps == pytest.approx(us / 1e3, rel=0.01)
    said = saves_text(gains[0])
    assert said.startswith("saves at most ")
    assert " J per step, $" in said


def test_without_either_nothing_is_said() -> None:
    found = report(price=0.0)
    assert found.cost is None
    assert all(saves_text(finding) == "" for finding in found.findings)


@pytest.mark.parametrize("words", [["--format", "md"], ["--full"], [], ["--full", "--format", "md"]])
def test_every_output_says_it_on_as_many_lines_as_before(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = str(bundled_path("mnist"))
    text = CliRunner().invoke(cli, ["explain", path, "--price", "3.6", "--no-cache", *words]).output
    assert "per million steps" in text
    assert "saves $" in text
    if not words:
        assert len(text.splitlines()) <= LINES


def test_a_project_may_say_the_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lanewise.toml").write_text("price = 1.8\n")
    assert load_settings().price == 1.8
    path = str(bundled_path("mnist"))
    said = json.loads(CliRunner().invoke(cli, ["explain", path, "--json"]).output)
    assert said["cost"]["dollars_per_hour"] == 1.8
    given = json.loads(CliRunner().invoke(cli, ["explain", path, "--json", "--price", "5"]).output)
    assert given["cost"]["dollars_per_hour"] == 5


@pytest.mark.parametrize("value", ['"2"', "-1", "true", "inf"])
def test_a_price_that_is_none_is_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "lanewise.toml").write_text(f"price = {value}\n")
    with pytest.raises(UsageError, match="price is the price of an hour in dollars"):
        load_settings(tmp_path / "lanewise.toml")


def test_a_run_on_the_cpu_has_a_price_and_no_energy() -> None:
    b = TraceBuilder(metadata={})
    for _ in range(4):
        with b.step(), b.op("aten::mm"):
            b.wait(1000)
    found = explain(b.build(), settings=Settings(price=PRICE))
    step_us = facts_of(b.build()).steps.step_ns / 1e3
    assert found.cost is not None
    assert found.cost.joules_per_step == 0
    assert found.cost.dollars_per_million_steps == pytest.approx(step_us / 1e3, rel=0.01)
