"""The comparison to paste: at most 40 lines for any two recordings, the verdict first, what is left out counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lanewise
from lanewise.show.diff.diff_markdown import LINES, diff_markdown, whole_diff_markdown

DATA = Path(__file__).resolve().parents[2] / "data"
ENDS = (("twins", "-bad", "-good"), ("h200", "-slow", "-fixed"))
PAIRS = sorted(
    (before, after)
    for folder, one, other in ENDS
    for before in (DATA / folder).glob(f"*{one}.json.gz")
    if (after := before.with_name(before.name.replace(one, other))).exists()
)
LONG = [pair for pair in PAIRS if pair[0].name.startswith(("dynamic_shape", "optimizer_loop", "many_copies"))]


def held(before: Path, after: Path) -> None:
    for contexts in (False, True):
        comparison = lanewise.diff(before, after, contexts=contexts, anyway=True)
        text = diff_markdown(comparison)
        lines = text.splitlines()
        assert len(lines) <= LINES, text
        assert lines[0].startswith("## ")
        assert lines[2].startswith("The step t")
        tables = [line for line in lines if line.startswith("|---")]
        assert len(tables) == 2 + contexts * bool(comparison.differences[0].contexts), text


@pytest.mark.parametrize(("before", "after"), LONG, ids=lambda path: path.name.split(".")[0])
def test_it_fits(before: Path, after: Path) -> None:
    held(before, after)


@pytest.mark.slow
def test_it_fits_for_all_pairs_of_the_corpus() -> None:
    assert len(PAIRS) > 25
    for before, after in PAIRS:
        held(before, after)


def test_rows_that_are_left_out_are_counted_and_can_be_had() -> None:
    comparison = lanewise.diff(*LONG[0])
    changed = comparison.differences[0].device
    short, whole = diff_markdown(comparison), whole_diff_markdown(comparison)
    assert re.search(r"^\d+ more rows$", short, re.M)
    assert "`-v` shows all rows" in short
    assert "more row" not in whole
    assert whole.count("\n| gone: ") == sum(change.how == "gone" for change in changed)


def test_several_sides_share_the_lines() -> None:
    (before, after), (second, third) = LONG[:2]
    comparison = lanewise.diff(before, after, second, third, anyway=True)
    text = diff_markdown(comparison)
    assert len(text.splitlines()) <= LINES
    assert text.count("\n## ") + text.startswith("## ") == 3
