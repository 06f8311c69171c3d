"""A part of `benchmarks.matrix`: programs do under `run` and `watch` what they do without us."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.matrix.__main__ import compare
from benchmarks.matrix.programs import PROGRAMS

SMALL = [name for name, case in PROGRAMS.items() if case.small]


@pytest.mark.parametrize("name", SMALL)
def test_a_program_is_the_same_under_run(name: str) -> None:
    assert compare(name, ["run"]) == {"run": []}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_program_is_the_same_under_watch(name: str) -> None:
    assert compare(name, ["watch", "windows"]) == {"watch": [], "windows": []}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SMALL])
def test_every_other_program_is_the_same(name: str) -> None:
    assert compare(name, ["run", "watch"]) == {"run": [], "watch": []}


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.matrix import __main__ as matrix

    monkeypatch.setitem(matrix.WAYS, "other", ("-c", "print(5); open('left', 'w'); raise SystemExit(3)"))
    (lines,) = compare("without torch", ["other"]).values()
    assert [line.split()[0] for line in lines] == ["exit", "stdout", "files"]
