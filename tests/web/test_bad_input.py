"""Traces at the edges: empty, one event, no duration, ten thousand lanes, a thousand steps, great depth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.micro import with_micro
from lanewise.trace.model import Trace
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder

Open = Callable[..., Any]


def through_all_views(page: Any) -> list[str]:
    """Visits every view; returns what each says first."""
    found: list[str] = []
    for hash_ in ("#", "#view=timeline", "#view=calls", "#view=tables"):
        page.evaluate(f"location.hash = '{hash_}'")
        page.wait_for_timeout(80)
        found.append(page.locator("main").inner_text())
    return found


def test_a_trace_without_events(page_of: Open) -> None:
    empty = Trace(tables={}, names=[], texts=[""], metadata={}, base_ns=0, reading=Reading(source="empty.json"))
    overview, timeline, calls, tables = through_all_views(page_of(empty).page)
    assert "no rows at all" in overview
    assert "nothing to draw" in timeline
    assert "no tree to show" in calls
    assert "nothing to put into a table" in tables


def test_a_trace_of_one_event(page_of: Open) -> None:
    b = TraceBuilder(metadata={})
    b.slice("aten::add", Kind.OPERATOR, 10, 5)
    page = page_of(b.build(), "#view=timeline").page
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("section.panel h2:has-text('aten::add')")
    assert "5.00 µs" in page.locator("section.panel").inner_text()
    through_all_views(page)


def test_events_without_duration_are_found_and_selected(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(50):
            b.slice(f"instant_{i}", Kind.OPERATOR, b.now, 0)
            b.wait(1)
    page = page_of(b.build(), "#view=timeline&search=instant_7").page
    page.wait_for_selector("section.panel h2:has-text('instant_7')")
    assert "0 µs" in page.locator("section.panel").inner_text()


def test_ten_thousand_lanes(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(10_000):
            b.slice("aten::add", Kind.OPERATOR, i * 2, 5, thread=str(1000 + i))
    page = page_of(b.build(), "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    canvas.focus()
    begun = time.monotonic()
    for _ in range(10):
        page.keyboard.press("PageDown")
    page.wait_for_timeout(50)
    assert time.monotonic() - begun < 3
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("section.panel h2:has-text('aten::add'), section.panel h2:has-text('ProfilerStep')")


def test_a_thousand_steps(page_of: Open) -> None:
    b = TraceBuilder()
    for _ in range(1_000):
        with b.step(), b.op("aten::add"):
            b.launch("kernel")
    page = page_of(b.build()).page
    assert "940 more steps not shown" in page.locator("main").inner_text()
    assert page.locator(".step-bars li").count() == 60
    page.evaluate("location.hash = '#view=timeline'")
    page.wait_for_selector(".canvas-box canvas")


def test_calls_thousands_deep(page_of: Open) -> None:
    """80,000 pixels of rows: more than a browser draws on one canvas."""
    b = TraceBuilder()
    events = [b.slice(f"level_{i}", Kind.OPERATOR, i, 10_000 - 2 * i) for i in range(4_000)]
    trace = b.build()
    assert trace.nesting.depth[events[-1]] == 3_999
    page = page_of(trace, "#view=timeline&search=level_3999").page
    page.wait_for_selector("section.panel h2:has-text('level_3999')")
    page.evaluate("location.hash = '#view=calls'")
    canvas = page.locator(".flame canvas")
    canvas.wait_for()
    rows = page.locator(".flame-rows")
    assert rows.bounding_box()["height"] < 800
    for level in (0, 3_000):
        # The thread has a row of its own above them.
        rows.evaluate(f"element => {{ element.scrollTop = {(level + 1) * 20} }}")
        page.wait_for_timeout(100)
        canvas.click(position={"x": 100, "y": 9 * 20 + 5})
        page.wait_for_selector(f".picked .slice-name:has-text('level_{level + 9}')")
    assert canvas.evaluate("c => c.getContext('2d').getImageData(100, 10, 1, 1).data[3]") == 255


def test_times_at_the_end_of_the_range(page_of: Open) -> None:
    b = TraceBuilder()
    far = 2**52 / 1000  # us: 52 days into a recording
    b.slice("early", Kind.OPERATOR, 0, 10)
    b.slice("late", Kind.OPERATOR, far, 10)
    trace = b.build()
    assert int(trace.start.max()) == 2**52
    page = page_of(trace, "#view=timeline&search=late").page
    page.wait_for_selector("section.panel h2:has-text('late')")
    assert "10.0 µs" in page.locator("section.panel").inner_text()


def test_a_broken_block_is_said_and_the_report_stays(page_of: Open, open_page: Open, tmp_path: Any) -> None:
    from lanewise.diagnose.explain import facts_of, report_of
    from lanewise.show.page.html import page as put_together
    from lanewise.show.page.payload import overview_block

    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch("kernel")
    facts = facts_of(b.build())
    report = report_of(facts)
    path = tmp_path / "broken.html"
    path.write_text(put_together(report, overview_block(facts, report), {"timeline": b"not zlib", "tables": b"x"}))
    page = open_page(path.as_uri()).page
    page.get_by_role("alert").wait_for()
    assert "could not be read" in page.get_by_role("alert").inner_text()
    assert page.locator("h1").inner_text() == with_micro(report.verdict)


def test_a_hash_that_means_nothing_is_ignored(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch("kernel")
    page = page_of(b.build(), "#view=nowhere&finding=<b>&t=9-1&t=x&%E0%A4%A").page
    assert page.locator("h1").is_visible()
    for hash_ in ("#t=99999999999-999999999999", "#finding=ZZZ999", "#view=tables&table=nothing"):
        page.evaluate(f"location.hash = '{hash_}'")
        page.wait_for_timeout(60)
        assert page.locator("main").is_visible()


def test_positions_survive_a_trace_in_random_order(page_of: Open) -> None:
    rng = np.random.default_rng(7)
    b = TraceBuilder()
    with b.step():
        for i in rng.permutation(400).tolist():
            b.slice(f"op_{i}", Kind.OPERATOR, 10 + i * 3, 2)
    page = page_of(b.build(), "#view=timeline&search=op_123").page
    page.wait_for_selector("section.panel h2:has-text('op_123')")
    assert "379.0 µs" in page.locator("section.panel").inner_text()
