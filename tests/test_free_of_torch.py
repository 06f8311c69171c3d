"""What CI leaves out of the tests with torch are tests that cannot tell whether it is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.free_of_torch import never_needs_torch

TESTS = REPOSITORY / "tests"


@pytest.mark.parametrize(
    ("file", "left_out"),
    [
        ("measure/kernel/test_work.py", True),
        ("measure/test_flop_counter.py", False),
        ("cli/test_verbs.py", False),
        ("capture/test_run.py", False),
        ("test_readme.py", False),
        ("conftest.py", False),
    ],
)
def test_rooms_of_the_contract_are_left_out_but_for_what_asks_for_torch(file: str, left_out: bool) -> None:
    assert (TESTS / file).is_file()
    assert never_needs_torch(TESTS / file) == left_out


def imports_torch(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == "torch" for name in names):
            return True
    return False


def test_what_is_left_out_imports_no_torch() -> None:
    left_out = [path for path in TESTS.rglob("*.py") if never_needs_torch(path)]
    assert len(left_out) > 100
    assert [path for path in left_out if imports_torch(path)] == []
