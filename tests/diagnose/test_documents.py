"""Every rule documents itself: its docstring is its page, and what a finding shows."""

from __future__ import annotations

import inspect
import re

import pytest

from lanewise.diagnose import rule as rule_module
from lanewise.diagnose.registry import builtin_rules
from lanewise.diagnose.rule import Rule
from tests.support.corpus import REPOSITORY

RULES = builtin_rules()
HEADINGS = ("Costs", "Fix", "Verify", "Silent", "Source")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_page_says_what_to_do_and_when_the_rule_is_silent(rule: Rule) -> None:
    first = rule.document.partition("\n\n")[0]
    assert first.endswith(".")
    for heading in HEADINGS if rule.kind != "regime" else ("Fix", "Verify"):
        assert rule.section(heading), heading


def test_the_example_of_a_rule_is_one_and_has_what_a_rule_needs() -> None:
    example = inspect.cleandoc(rule_module.__doc__ or "").split("\n\n    ", 1)[1]
    code = inspect.cleandoc("    " + example.partition("\n\nThe docstring")[0])
    names = vars(rule_module) | {"Facts": object}
    exec(code, names)
    made = names["many_tiny_kernels"]
    assert isinstance(made, Rule)
    assert made.thresholds == {"launches_from": 20}
    assert all(made.section(heading) for heading in HEADINGS)


def test_contributing_names_every_heading_that_a_rule_needs() -> None:
    steps = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## Add a diagnosis")[2]
    assert all(f"`{heading}:`" in steps for heading in HEADINGS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_thresholds_are_numbers_with_defaults(rule: Rule) -> None:
    for name, value in rule.thresholds.items():
        assert isinstance(value, int | float), name


def test_codes_and_names_are_unique_and_in_catalogue_order_within_a_family() -> None:
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert len({rule.name for rule in RULES}) == len(RULES)
    for family in {code[:3] for code in codes}:
        own = [code for code in codes if code.startswith(family)]
        assert own == sorted(own)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_file_is_named_after_the_rule(rule: Rule) -> None:
    file = inspect.getmodule(rule.check)
    assert file is not None
    name = file.__name__.rpartition(".")[2]
    assert name in {rule.name.replace("-", "_"), "regimes"}
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
