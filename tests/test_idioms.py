"""What is written in one way: columns of evidence, masks of rows, steady steps and their events, kinds of events."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.report import evidence_columns
from lanewise.report.model import TableColumn
from lanewise.trace.groups import mask_of
from tests.support.builder import TraceBuilder
from tests.support.corpus import REPOSITORY

SOURCES = {path: path.read_text(encoding="utf-8") for path in (REPOSITORY / "src" / "lanewise").rglob("*.py")}
SHARED = {one.key: one for one in vars(evidence_columns).values() if isinstance(one, TableColumn)}


def written_out() -> list[tuple[Path, tuple[str, ...]]]:
    """Columns that a file declares by themselves: key, unit and heading, as far as they are texts."""
    found: list[tuple[Path, tuple[str, ...]]] = []
    for path, text in SOURCES.items():
        if path.name == "evidence_columns.py" or "TableColumn(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TableColumn":
                told = tuple(one.value for one in node.args if isinstance(one, ast.Constant))
                if len(told) == 3:
                    found.append((path, told))
    return found


def test_a_column_of_several_tables_is_declared_once() -> None:
    again = [
        (path.name, told)
        for path, told in written_out()
        if "diagnose" in path.parts and told[0] in SHARED and SHARED[told[0]].type == told[1]
    ]
    assert again == [], "headed(COLUMN, ...) names a column of report/evidence_columns.py anew"
    files: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path, told in written_out():
        files[told].add(path.name)
    assert {told: sorted(names) for told, names in files.items() if len(names) > 2} == {}


def test_one_unit_for_a_key() -> None:
    assert all(name == one.key.upper() for name, one in vars(evidence_columns).items() if isinstance(one, TableColumn))
    assert evidence_columns.headed(evidence_columns.TIME, "self time") == TableColumn("time", "time", "self time")


def test_steady_steps_and_masks_are_asked_for_in_one_way() -> None:
    by_hand = re.compile(r"concatenate\(\(\w+\.(steps\.)?steady, \[False\]\)\)")
    mask = re.compile(r"^( *)(\w+) = np\.zeros\(.*, dtype=bool\)\n\1\2\[.*\] = True$", re.M)
    for path, text in SOURCES.items():
        if path.name != "core.py":
            assert not by_hand.search(text), path
        if path.name != "groups.py" and "fix" not in path.parts:
            assert len(mask.findall(text)) <= ALLOWED.get(path.name, 0), path


# Places of a table, flat, where a row is a number that is computed in the same line.
ALLOWED = {"own_host_work.py": 1}


def test_kinds_of_events_go_by_name() -> None:
    number = re.compile(r"\bkind(\[[^\]]*\])? *(==|!=|<|>|<=|>=) *\d|isin\([^()]*\bkind\b[^()]*, *[\[(]\d")
    assert [path for path, text in SOURCES.items() if number.search(text)] == []


def test_what_belongs_to_steady_steps() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::add"):
            b.launch(duration=5)
    facts = Facts(b.build())
    assert facts.steady.tolist() == [False, True, True]
    assert facts.steady_count == 2
    assert facts.is_steady(np.array([-1, 0, 2])).tolist() == [False, False, True]
    adds = np.flatnonzero(facts.trace.name == facts.trace.name_ids("aten::add")[0])
    assert facts.steady_events(adds).tolist() == adds[1:].tolist()


def test_a_mask_of_rows() -> None:
    assert mask_of(4, np.array([1, 3])).tolist() == [False, True, False, True]
    assert mask_of(2, []).tolist() == [False, False]
    assert mask_of(3, [-1]).tolist() == [False, False, True]
