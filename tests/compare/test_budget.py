"""Budgets from files: what is allowed, and one clear line for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lanewise.compare.budget import find_budget_file, parse_budgets, read_budgets
from lanewise.errors import InputError, UsageError


def one(**table: Any) -> Any:
    (budget,) = parse_budgets(table)
    return budget


def test_a_number_alone_is_the_limit_that_makes_sense() -> None:
    assert one(step_time=1500).most == 1_500_000
    assert one(launches=40).most == 40
    assert one(memory_peak=2000).most == 2e9
    assert one(busy_share=0.8).least == 0.8
    assert one(busy_share=0.8).most is None


def test_tables_name_their_units_and_levels() -> None:
    budget = one(step_time={"max_ms": 1.5, "max_increase": "5 %", "level": "warn"})
    assert (budget.most, budget.increase, budget.level) == (1_500_000, 0.05, "warn")
    assert one(launches={"max_increase": 0}).increase == 0
    assert one(launches={"max_increase": 0}).needs_baseline
    assert one(forbid=["syn101", "CMP1"]).codes == ("SYN101", "CMP1")
    assert one(forbid={"codes": ["MEM"], "level": "off"}).level == "off"
    assert one(kernels="same").needs_baseline
    both = parse_budgets({"level": "warn", "launches": 3, "waits": {"max": 0, "level": "error"}})
    assert [budget.level for budget in both] == ["warn", "error"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"launch": 40}, "no budget 'launch'; there are: step_time"),
        ({"launches": "many"}, "launches is a number"),
        ({"launches": {"max_us": 3}}, "launches.max_us = 3 is no limit; launches has: max, min"),
        ({"launches": {}}, "launches has no limit"),
        ({"launches": {"max": True}}, "no limit"),
        ({"launches": -1}, "no limit"),
        ({"step_time": {"max_increase": 5}}, 'say "5 %" or 0.05'),
        ({"step_time": {"max_increase": "a lot"}}, 'say "5 %" or 0.05'),
        ({"step_time": {"max_us": 3, "level": "fatal"}}, "step_time.level is one of error, warn, off"),
        ({"level": "loud"}, "level is one of"),
        ({"forbid": "SYN101"}, "forbid is a list of codes"),
        ({"forbid": ["sync"]}, "forbid is a list of codes"),
        ({"kernels": 12}, 'kernels = "same"'),
    ],
)
def test_mistakes_are_one_line(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budgets(table, source="pyproject.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("pyproject.toml")
    assert "\n" not in str(caught.value)


def test_the_nearest_file_with_budgets_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.lanewise.budget]\nlaunches = 3\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert find_budget_file(inner) == tmp_path / "pyproject.toml"
    (inner / "lanewise.toml").write_text("[budget]\nlaunches = 4\n")
    assert find_budget_file(inner) == inner / "lanewise.toml"


def test_lines_are_known_for_annotations(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\nlaunches = 1\n\n[tool.lanewise.budget]\nbaseline = "base.json"\nlaunches = 3\n'
        "[tool.lanewise.budget.step_time]\nmax_us = 5\n"
    )
    file = read_budgets(path)
    assert {budget.key: budget.line for budget in file.budgets} == {"launches": 6, "step_time": 7}
    assert file.baseline == str(tmp_path / "base.json")


def test_files_that_hold_none(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\n")
    with pytest.raises(UsageError, match="nothing to check"):
        read_budgets(path)
    path.write_text("[project\n")
    with pytest.raises(InputError, match="no TOML"):
        read_budgets(path)
    with pytest.raises(InputError):
        read_budgets(tmp_path / "missing.toml")
