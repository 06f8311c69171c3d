"""Every rule has tests of its own, in the folder of tests/diagnose/ that its file has in rules/: one in which it fires, one
in which it stays silent for its stated reason, and one that holds its threshold from both sides.

Names are the convention: a test of a threshold has `threshold` or `fires_from`, `fires_above`, `fires_below`, `fires_up_to`
in its name, and holds a case that fires beside one that does not. Whether a case fires is told by what its body calls:
`found`, or one of `cleared`, `skipped` and `needed` (or the outcomes themselves), perhaps through a function of the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from lanewise.diagnose.registry import builtin_rules
from lanewise.diagnose.rule import Rule

_HERE = Path(__file__).parent
_FIRES = frozenset({"found", "Found"})
_SILENT = frozenset({"cleared", "skipped", "needed", "Clear", "NotApplicable", "NeedsCapture"})
_THRESHOLD = re.compile(r"threshold|fires_(from|above|below|up_to)")

# What only two runs together can tell fires where runs are compared.
_FIRES_ELSEWHERE = {"CMP105": "compare/test_twins.py"}


class Case(NamedTuple):
    """One test: its name, and every name that it or a function of its file uses."""

    name: str
    uses: frozenset[str]

    @property
    def fires(self) -> bool:
        return bool(self.uses & _FIRES)

    @property
    def silent(self) -> bool:
        return bool(self.uses & _SILENT)

    @property
    def of_threshold(self) -> bool:
        return _THRESHOLD.search(self.name) is not None


def path_of(rule: Rule) -> Path:
    """The file of the rule's tests."""
    *folder, file = rule.check.__module__.partition(".rules.")[2].split(".")
    return _HERE.joinpath(*folder, f"test_{file}.py")


@cache
def cases(path: Path) -> list[Case]:
    """The tests in a file."""
    return list(cases_in(path.read_text(encoding="utf-8")))


def cases_in(source: str) -> Iterator[Case]:
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    def uses(function: ast.FunctionDef, seen: frozenset[str]) -> set[str]:
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for other in names & functions.keys() - seen:
            names = names | uses(functions[other], seen | {other})
        return names

    for name, function in functions.items():
        if name.startswith("test_"):
            yield Case(name, frozenset(uses(function, frozenset({name}))))


@pytest.fixture(params=builtin_rules(), ids=lambda rule: rule.code)
def rule(request: pytest.FixtureRequest) -> Rule:
    return request.param


def test_it_has_a_file_of_its_own_that_names_it(rule: Rule) -> None:
    assert path_of(rule).is_file(), f"{rule.code} has no tests: write {path_of(rule).relative_to(_HERE.parents[1])}"
    assert rule.code in path_of(rule).read_text(encoding="utf-8")


def test_it_fires_somewhere(rule: Rule) -> None:
    elsewhere = _FIRES_ELSEWHERE.get(rule.code)
    if elsewhere is not None:
        assert rule.code in (_HERE.parent / elsewhere).read_text(encoding="utf-8")
        return
    assert any(case.fires for case in cases(path_of(rule))), f"{rule.code} fires in no test of its own"


def test_it_stays_silent_somewhere_for_another_reason_than_a_threshold(rule: Rule) -> None:
    found = [case for case in cases(path_of(rule)) if case.silent and not case.of_threshold]
    assert found, f"{rule.code} stays silent in no test of its own: write one for what it says under `Silent:`"


def test_its_threshold_is_held_from_both_sides(rule: Rule) -> None:
    if not rule.thresholds:
        return
    held = [case for case in cases(path_of(rule)) if case.of_threshold and case.fires and case.silent]
    assert held, (
        f"{rule.code} has {', '.join(rule.thresholds)}, and no test named for a threshold holds it from both sides"
    )


def test_every_file_of_tests_is_that_of_a_rule() -> None:
    """A renamed rule takes its tests along; what is about several rules stands beside the families."""
    assert set(_HERE.glob("*/**/test_*.py")) == {path_of(rule) for rule in builtin_rules()}


def test_the_convention_tells_cases_apart() -> None:
    source = """
def both():
    found("X"); cleared("X")
def test_one():
    found("X")
def test_fires_from_three():
    both()
def test_the_thresholds():
    found("X")
"""
    told = {case.name: (case.fires, case.silent, case.of_threshold) for case in cases_in(source)}
    assert told == {
        "test_one": (True, False, False),
        "test_fires_from_three": (True, True, True),
        "test_the_thresholds": (True, False, True),
    }
