"""The page of two runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanewise.compare.compare import compare_arms
from lanewise.compare.diff import run_of
from lanewise.compare.sides.arm import Arm
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.micro import with_micro
from lanewise.show.diff.diff_page import diff_html, diff_tree
from lanewise.trace.model import Trace
from tests.support.builder import TraceBuilder
from tests.support.compared import base_of
from tests.web.waiting import until

Open = Callable[..., Any]


def program(kernels: int, *, name: str = "mul_kernel", wait: float = 20) -> Trace:
    b = TraceBuilder()
    for _ in range(6):
        with b.step(), b.frame("train.py(12): train"):
            for _ in range(kernels):
                with b.op("aten::mul"):
                    b.launch(name, duration=8)
            b.wait(wait)
    return b.build()


@pytest.fixture
def compared(open_page: Open, tmp_path: Path) -> Callable[..., Any]:
    def compared(before: Trace, after: Trace) -> Any:
        path = tmp_path / "diff.html"
        facts = facts_of(after)
        report = report_of(facts)
        path.write_text(diff_html(facts, report, base_of(facts_of(before), facts, report)), encoding="utf-8")
        watched = open_page(path.as_uri() + "#view=compare")
        watched.ready()
        watched.page.locator(".locked canvas").nth(1).wait_for()
        return watched.page

    return compared


def test_it_says_what_diff_says(compared: Callable[..., Any]) -> None:
    before, after = program(20), program(5)
    difference = compare_arms([Arm("before", [run_of(before)]), Arm("after", [run_of(after)])], anyway=True)
    page = compared(before, after)
    verdict, reasons = page.locator("h1").inner_text(), page.locator("h1 + p").inner_text()
    assert f"{verdict} {reasons}" == with_micro(difference.differences[0].verdict)
    assert verdict.startswith("The step takes ")
    assert reasons.startswith("Step time: faster ")
    bars = page.locator("ol.waterfall > li")
    items = [item for item in difference.differences[0].waterfall.items if item.ns]
    assert bars.count() == len(items) + 2
    assert page.locator(".water.less").count() == sum(item.ns < 0 for item in items)


def test_both_timelines_move_together(compared: Callable[..., Any]) -> None:
    page = compared(program(20), program(5))
    upper, lower = (page.locator(".locked canvas").nth(i) for i in (0, 1))
    pictures = upper.screenshot(), lower.screenshot()
    upper.focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.wait_for_timeout(150)
    zoomed = upper.screenshot(), lower.screenshot()
    assert zoomed[0] != pictures[0]
    assert zoomed[1] != pictures[1]
    lower.focus()
    page.keyboard.press("-")
    page.wait_for_timeout(150)
    assert upper.screenshot() != zoomed[0]


def test_the_tree_shows_both_costs_of_a_node(compared: Callable[..., Any]) -> None:
    page = compared(program(20), program(5))
    page.locator(".flame canvas").focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    until(page, "!!document.querySelector('[aria-label=\"Selected node\"]')")
    text = page.get_by_label("Selected node").inner_text()
    assert re.search(r"before 160\.0 µs, after 40\.0 µs", text)


def test_costs_of_both_sides_are_those_of_a_step() -> None:
    base, facts = facts_of(program(20)), facts_of(program(5))
    columns, _ = diff_tree(base, facts)
    assert columns["a.device"].sum() == 20 * 8_000
    assert columns["b.device"].sum() == 5 * 8_000
    assert (columns["parent"] < np.arange(len(columns["parent"]))).all()


def test_names_of_both_runs_are_only_text(compared: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=window.pwned=1>"
    page = compared(program(8, name=hostile), program(8, name=hostile + "2"))
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert hostile in page.locator("main").inner_text()


def test_without_a_common_step_the_page_still_opens(compared: Callable[..., Any]) -> None:
    b = TraceBuilder(metadata={})
    with b.op("aten::add"):
        pass
    page = compared(b.build(), program(3))
    assert page.locator("h1").inner_text()
