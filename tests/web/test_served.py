"""The page from the local server: slices come a window at a time, and everything else works as in a file."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.page.server import PageServer
from tests.support.compared import base_of
from tests.web.traces import training
from tests.web.waiting import until

Open = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[PageServer]:
    facts = facts_of(training(6))
    made = PageServer(facts, report_of(facts), max_slices=10)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(5)


def test_windows_are_fetched_and_drawn_as_one_zooms(open_page: Open, server: PageServer) -> None:
    asked: list[str] = []
    watched = open_page("about:blank")
    page = watched.page
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address + "#view=timeline")
    canvas = page.locator(".canvas-box canvas")
    canvas.wait_for()
    until(page, "performance.getEntriesByType('resource').some(e => e.name.includes('/slices'))")
    page.wait_for_timeout(300)
    first = len([url for url in asked if "/slices" in url])
    canvas.focus()
    for _ in range(8):
        page.keyboard.press("+")
    page.wait_for_timeout(500)
    windows = [url for url in asked if "/slices" in url]
    assert len(windows) > first
    widths = [int(b) - int(a) for a, b in (re.search(r"from=(\d+)&to=(\d+)", url).groups() for url in windows)]
    assert widths[-1] < widths[0]
    assert all(url.startswith(server.address.rsplit("/", 2)[0]) for url in asked)


def test_search_selection_and_measuring_ask_the_server(open_page: Open, server: PageServer) -> None:
    page = open_page(server.address + "#view=timeline&search=mul_kernel").page
    panel = page.locator("section.panel")
    panel.get_by_text("Launched from").wait_for()
    assert "180 matches" in page.get_by_test_id("matches").inner_text()
    panel.get_by_role("button", name="aten::mul").first.click()
    panel.get_by_text("Launches 1 piece of device work").wait_for()
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("m")
    panel.get_by_text("measured").wait_for()
    assert "aten::mul" in panel.inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert panel.locator("h2").first.inner_text() != "How to read this"


def test_tables_and_trees_are_made_when_their_view_is_opened(open_page: Open, server: PageServer) -> None:
    asked: list[str] = []
    page = open_page("about:blank").page
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[-1]))
    page.goto(server.address + "#view=timeline")
    until(page, "performance.getEntriesByType('resource').some(e => e.name.includes('/slices'))")
    page.wait_for_timeout(300)
    assert not {"tables", "tree"} & set(asked)
    for _ in range(2):
        page.get_by_role("link", name="Calls").click()
        page.locator(".flame canvas").first.wait_for()
        page.get_by_role("link", name="Tables").click()
        page.locator("tbody tr").first.wait_for()
    assert asked.count("tree") == asked.count("tables") == 1


def test_the_timeline_is_laid_out_while_the_overview_is_read(open_page: Open, server: PageServer) -> None:
    open_page(server.address).page.locator("h1").wait_for()
    assert server._preparing is not None
    server._preparing.join(10)
    assert "_overview" in server.__dict__


def test_findings_jump_there_too(open_page: Open, server: PageServer) -> None:
    page = open_page(server.address).page
    page.locator("ol.cards > li.card").first.get_by_text("Show in the timeline").click()
    page.locator("section.panel .code").first.wait_for()
    page.get_by_role("link", name="Calls").click()
    page.locator(".flame canvas").first.wait_for()
    page.get_by_role("link", name="Tables").click()
    page.locator("tbody tr").first.wait_for()


def test_a_server_that_is_gone_is_said(open_page: Open, server: PageServer) -> None:
    watched = open_page(server.address + "#view=timeline")
    page = watched.page
    page.locator(".canvas-box canvas").focus()
    page.wait_for_timeout(300)
    page.route("**/slices*", lambda route: route.abort())
    for _ in range(30):
        page.keyboard.press("+")
    page.get_by_role("alert").wait_for()
    assert "still running" in page.get_by_role("alert").inner_text()
    watched.problems.clear()


def test_two_runs_are_served(open_page: Open) -> None:
    facts, base = facts_of(training(6)), facts_of(training(6, kernel="void slower_kernel<float>"))
    report = report_of(facts)
    made = PageServer(facts, report, base=base_of(base, facts, report))
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        page = open_page(made.address).page
        page.locator(".locked canvas").nth(1).wait_for()
        assert "slower_kernel" in page.locator("main").inner_text()
        page.get_by_role("link", name="Timeline").click()
        page.locator(".canvas-box canvas").first.wait_for()
    finally:
        made.close()
        thread.join(5)
