"""What helps to read a timeline: cards that are never stale, the selection in the address, colours, step numbers, room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.report.model import Report
from lanewise.show.page import window_queries
from lanewise.show.page.html import report_html
from lanewise.show.page.series import queue_series
from lanewise.show.page.server import PageServer
from tests.web.traces import training
from tests.web.waiting import until

Open = Callable[..., Any]
_GUTTER = 190
_CAUSES = 58
_TEXTS = """() => {
  const { fillText, putImageData } = CanvasRenderingContext2D.prototype
  window.frames_ = 0
  CanvasRenderingContext2D.prototype.putImageData = function (...all) {
    window.drawn = []
    window.frames_++
    return putImageData.apply(this, all)
  }
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    if (text) window.drawn.push([text, x, y])
    return fillText.call(this, text, x, y, ...rest)
  }
}"""


def test_the_hover_card_follows_the_picture_and_not_only_the_pointer(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    box = canvas.bounding_box()
    # From one class of time to the next: the card names what is there.
    page.mouse.move(box["x"] + _GUTTER + 300, box["y"] + _CAUSES)
    page.locator(".hover-card").wait_for()
    said = page.locator(".hover-card").inner_text()
    page.keyboard.down("d")
    until(page, f"document.querySelector('.hover-card')?.innerText !== {said!r}")
    page.keyboard.up("d")
    page.wait_for_timeout(200)
    page.keyboard.press("0")
    page.wait_for_timeout(200)
    assert page.locator(".hover-card").inner_text() == said


def test_a_selection_stands_in_the_address_and_comes_back(page_of: Open) -> None:
    watched = page_of(training(), "#view=timeline")
    page = watched.page
    page.locator("input[type=search]").fill("aten::mul")
    page.keyboard.press("Enter")
    page.locator("section.panel .slice-name, section.panel h2 bdi").first.wait_for()
    named = page.locator("section.panel").inner_text().splitlines()[0]
    until(page, r"/slice=\d+/.test(location.hash)")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    watched.ready()
    until(page, "document.querySelector('section.panel h2')")
    page.wait_for_timeout(300)
    assert page.locator("section.panel").inner_text().splitlines()[0] == named
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('slice=')")


def test_a_selection_comes_back_from_a_server_too(open_page: Open) -> None:
    facts = facts_of(training())
    event = int(facts.trace.device_work[3])
    server = PageServer(facts, report_of(facts), max_slices=10)
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        page = open_page(f"{server.address}#view=timeline&slice={event}").page
        until(page, "document.querySelector('section.panel')?.innerText.includes('mul_kernel')")
    finally:
        server.close()


def test_numbers_of_steps_do_not_end_at_nine(page_of: Open) -> None:
    page = page_of(training(steps=120), "#view=timeline").page
    page.evaluate(_TEXTS)
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("-")
    page.wait_for_timeout(300)
    drawn = page.evaluate("window.drawn")
    numbers = sorted(int(text[1:].split()[0]) for text, _, y in drawn if text.startswith("#") and 26 < y < 46)
    assert len(numbers) > 5
    assert max(numbers) > 99
    places = sorted((x, len(text) * 5) for text, x, y in drawn if text.startswith("#") and 26 < y < 46)
    assert all(left + wide < right for (left, wide), (right, _) in pairwise(places))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[PageServer, Report]]:
    """A trace that its page asks a server for, slice by slice."""
    facts = facts_of(training())
    report = report_of(facts)
    server = PageServer(facts, report, max_slices=10)
    threading.Thread(target=server.serve, daemon=True).start()
    yield server, report
    server.close()


@pytest.mark.parametrize("from_server", [False, True])
def test_a_key_says_what_the_colours_are(
    page_of: Open, open_page: Open, served: tuple[PageServer, Report], from_server: bool
) -> None:
    there = "#view=timeline"
    page = (open_page(served[0].address + there) if from_server else page_of(training(), there)).page
    key = page.get_by_test_id("colours").inner_text()
    for what in ("kernels: ", "operators", "launches"):
        assert what in key
    assert "sets" not in key


@pytest.mark.parametrize("from_server", [False, True])
def test_every_event_of_a_finding_is_marked(
    page_of: Open, open_page: Open, served: tuple[PageServer, Report], from_server: bool
) -> None:
    finding = max(served[1].findings, key=lambda one: sum(place.events for place in one.places))
    total = sum(place.events for place in finding.places)
    assert total > 100
    there = f"#view=timeline&finding={finding.code}"
    page = (open_page(served[0].address + there) if from_server else page_of(training(), there)).page
    said = page.get_by_test_id("marked")
    said.wait_for()
    assert said.inner_text().strip() == f"All of its {total} events are underlined in the lanes."
    page.evaluate(
        "() => { const { fillRect } = CanvasRenderingContext2D.prototype; window.bars = [];"
        "CanvasRenderingContext2D.prototype.fillRect = function (x, y, w, h) {"
        " if (h === 3 && y > 80) window.bars.push(x); return fillRect.call(this, x, y, w, h) } }"
    )
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("+")
    until(page, "window.bars.length > 20")
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    page.evaluate("window.bars = []")
    page.keyboard.press("-")
    page.wait_for_timeout(150)
    assert page.evaluate("window.bars.length") == 0


def test_pinned_lanes_stay_while_the_others_scroll(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline", height=460).page
    page.evaluate(_TEXTS)
    canvas = page.locator(".canvas-box canvas")
    box = canvas.bounding_box()

    def tops() -> dict[str, float]:
        page.wait_for_timeout(120)
        return {text: y for text, x, y in page.evaluate("window.drawn") if x < _GUTTER}

    button = page.get_by_role("button", name="Pin GPU")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    before = tops()
    lane = next(text for text in before if text.startswith("GPU 0, stream"))
    page.mouse.move(box["x"] + 500, box["y"] + box["height"] - 10)
    page.mouse.wheel(0, 30)
    after = tops()
    assert after[lane] == before[lane]
    assert after["GPU 0"] < before["GPU 0"]
    # The pin of the lane lets it go again.
    page.mouse.click(box["x"] + _GUTTER - 10, box["y"] + before[lane])
    assert lane not in tops()
    assert button.get_attribute("aria-pressed") == "false"


def test_the_panel_takes_the_room_that_it_is_given(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    panel, canvas = page.locator("section.panel"), page.locator(".canvas-box canvas")
    before, lanes = panel.bounding_box()["height"], canvas.bounding_box()["height"]
    divider = page.get_by_role("separator")
    divider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    page.wait_for_timeout(100)
    assert panel.bounding_box()["height"] == before + 96
    assert canvas.bounding_box()["height"] == lanes - 96
    box = divider.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 103, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert abs(panel.bounding_box()["height"] - (before - 4)) < 3


def test_pointing_paints_nothing_and_outlines_what_is_pointed_at(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    box = page.locator(".canvas-box canvas").bounding_box()
    page.wait_for_timeout(100)
    page.evaluate(_TEXTS)
    outlined: set[float] = set()
    for i in range(24):
        x = 230 + 40 * i
        page.mouse.move(box["x"] + x, box["y"] + 200 + i % 8 * 20)
        page.wait_for_timeout(30)
        outline = page.locator(".hover-outline")
        if outline.count():
            around = outline.bounding_box()
            assert around["x"] - 3 <= box["x"] + x <= around["x"] + around["width"] + 3
            outlined.add(around["x"])
    assert len(outlined) > 2
    assert page.evaluate("window.frames_") == 0
    page.keyboard.press("+")
    page.wait_for_timeout(100)
    assert page.evaluate("window.frames_") > 0


def test_the_summary_is_copied_and_the_tab_names_the_file(open_page: Open, tmp_path: Path) -> None:
    facts = facts_of(training())
    report = report_of(facts)
    path = tmp_path / "report.html"
    path.write_text(report_html(facts, report), encoding="utf-8")
    page = open_page(path.as_uri(), permissions=["clipboard-read", "clipboard-write"]).page
    page.get_by_role("button", name="Copy summary").click()
    page.get_by_text("Copied.").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("# ")
    assert report.findings[0].code in text or report.verdict[:30] in text
    assert page.title().endswith(" · lanewise")
    assert page.title().startswith(facts.trace.reading.source.rsplit("/", 1)[-1] or report.verdict[:20])


def test_a_served_queue_is_exact_where_one_looks(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_queries, "THINNED", 12)
    facts = facts_of(training(30))
    (whole,) = queue_series(facts, 10**9)
    at = len(whole.time) // 2
    low, high = int(whole.time[at - 8]), int(whole.time[at + 8])
    server = PageServer(facts, report_of(facts), max_slices=10)
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        page = open_page(f"{server.address}#t={low}-{high}").page
        until(page, "performance.getEntriesByType('resource').some(e => e.name.includes('/slices'))")
        page.wait_for_timeout(400)
        box = page.locator(".canvas-box canvas").bounding_box()
        lane = box["y"] + 120
        width = box["width"] - _GUTTER
        for point in range(at - 5, at + 5):
            middle = (int(whole.time[point]) + int(whole.time[point + 1])) / 2
            if whole.time[point + 1] - whole.time[point] < (high - low) / 100:
                continue
            page.mouse.move(box["x"] + _GUTTER + (middle - low) / (high - low) * width, lane)
            page.locator(".hover-card").wait_for()
            page.wait_for_timeout(40)
            assert page.locator(".hover-card").inner_text() == f"launched and waiting: {whole.value[point]}"
    finally:
        server.close()


def test_a_link_followed_while_the_address_is_noted_leads_where_it_says(page_of: Open) -> None:
    """The address is noted a moment after the view changed; `hashchange` arrives a moment after a link was followed."""
    page = page_of(training(), "#view=timeline").page
    page.locator(".canvas-box canvas").focus()
    page.evaluate("""() => {
        setTimeout(() => { location.hash = '#view=tables' }, 390)
        document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }))
        // Both are due when this ends, the link first.
        for (const begun = performance.now(); performance.now() - begun < 600; );
    }""")
    page.wait_for_selector("nav a[aria-current=page]:has-text('Tables')", timeout=5_000)
    page.wait_for_timeout(500)
    assert page.evaluate("location.hash") == "#view=tables"
