"""The table of outputs: every line names a function that is there, and every format that a verb offers is in it."""

from __future__ import annotations

import importlib

import pytest

from lanewise.cli import outputs
from lanewise.cli.comparing.check import check
from lanewise.cli.comparing.diff import diff
from lanewise.cli.reading.explain import explain
from lanewise.cli.reading.table import table
from lanewise.cli.reading.tree import tree


@pytest.mark.parametrize("place", outputs._OUTPUTS.values())
def test_every_output_is_there(place: str) -> None:
    module, function = place.split(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(
    ("kind", "command"), [("report", explain), ("tables", table), ("diff", diff), ("check", check), ("tree", tree)]
)
def test_a_verb_offers_what_the_table_holds(kind: str, command: object) -> None:
    choices = [list(p.type.choices) for p in command.params if p.name == "format_"]  # type: ignore[attr-defined]
    assert len(choices) == 1
    assert set(outputs.formats(kind)) <= set(choices[0])
    assert set(choices[0]) - set(outputs.formats(kind)) <= {"text"}
