"""The timeline: findings jump to their place; selection, search, measuring, folding; by mouse, touch and keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from lanewise.diagnose.explain import explain
from lanewise.micro import with_micro
from tests.support.builder import TraceBuilder
from tests.web.traces import training
from tests.web.waiting import until

Open = Callable[..., Any]
_GUTTER = 190


def view_of(page: Any) -> tuple[int, int]:
    """The stretch on screen, ns, from the address."""
    until(page, "/t=\\d+-\\d+/.test(location.hash)")
    found = re.search(r"t=(\d+)-(\d+)", page.evaluate("location.hash"))
    assert found
    return int(found[1]), int(found[2])


def nudge(page: Any) -> tuple[int, int]:
    """The stretch on screen, read by zooming out and in again a little, which writes it into the address."""
    page.locator(".canvas-box canvas").focus()
    page.wait_for_timeout(50)
    page.keyboard.press("-")
    page.keyboard.press("+")
    page.wait_for_timeout(500)
    return view_of(page)


def test_every_finding_jumps_to_its_place(page_of: Open) -> None:
    trace = training()
    report = explain(trace)
    watched = page_of(trace)
    page = watched.page
    placed = [f for f in report.findings if f.places and f.kind in {"problem", "statement"}]
    assert placed
    for finding in placed:
        page.goto(page.url.split("#")[0] + f"#finding={finding.code}")
        page.reload()
        watched.ready()
        panel = page.locator("section.panel")
        panel.locator(".code").first.wait_for()
        assert panel.locator(".code").first.inner_text() == finding.code
        assert with_micro(finding.title)[:60] in panel.inner_text()
        low, high = nudge(page)
        place = finding.places[0]
        # 0.6 and 1.6 of the zoom keys are not exact opposites: the place is on screen and fills much of it.
        assert low <= place.start_ns + 1
        assert high >= place.end_ns - 1
        assert (place.end_ns - place.start_ns) / (high - low) > 0.4


def test_a_card_leads_to_the_timeline_and_back(page_of: Open) -> None:
    page = page_of(training()).page
    card = page.locator("ol.cards > li.card").first
    code = card.locator(".code").first.inner_text()
    card.get_by_text("Show in the timeline").click()
    page.wait_for_selector(".canvas-box canvas")
    assert page.locator("section.panel .code").first.inner_text() == code
    page.get_by_text("Next place").click()
    assert "2 of" in page.locator("section.panel").inner_text()
    page.get_by_text("The finding with its evidence").click()
    page.wait_for_selector(f"#finding-{code}.current")
    assert page.locator(f"#finding-{code}.current").is_visible()


def test_search_counts_matches_and_walks_through_them(page_of: Open) -> None:
    page = page_of(training(2), "#view=timeline").page
    page.locator(".canvas-box canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("mul_kernel")
    until(page, "document.querySelector('[data-testid=matches]').textContent.includes('60 matches')")
    page.keyboard.press("Enter")
    page.wait_for_selector("section.panel h2:has-text('mul_kernel')")
    assert "1 of 60" in page.get_by_test_id("matches").inner_text()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-testid=matches]').textContent.includes('2 of 60')")
    page.keyboard.press("Control+a")
    page.keyboard.type("nothing like it")
    until(page, "document.querySelector('[data-testid=matches]').textContent.includes('no match')")


def test_a_kernel_names_its_launch_and_an_operator_its_work(page_of: Open) -> None:
    page = page_of(training(2), "#view=timeline&search=mul_kernel").page
    panel = page.locator("section.panel")
    panel.get_by_text("Launched from").wait_for()
    text = panel.inner_text()
    assert "waited on the device" in text
    assert "264 × 1 × 1 blocks" in text
    assert "aten::mul" in text
    panel.get_by_role("button", name="aten::mul").first.click()
    panel.get_by_text("Launches 1 piece of device work").wait_for()
    assert "[[64,64],[64,64]]" in panel.inner_text()
    assert "shapes" in panel.inner_text()
    assert "Its backward" in panel.inner_text()
    panel.get_by_role("button", name="MulBackward0").click()
    panel.get_by_text("Backward of").wait_for()


def test_a_click_selects_what_is_drawn_there(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::whole", head=400, tail=400):
        b.launch("kernel_a", duration=300)
    trace = b.build()
    page = page_of(trace, "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    box = canvas.bounding_box()
    # The lanes lie below ruler, steps, causes, a heading and a curve; walk down until the operator is hit.
    middle = box["x"] + _GUTTER + (box["width"] - _GUTTER) / 4
    names = set()
    for y in range(80, int(box["height"]), 8):
        page.mouse.move(middle, box["y"] + y)
        page.wait_for_timeout(30)
        card = page.locator(".hover-card .slice-name")
        if card.count():
            names.add(card.inner_text())
        if names and "aten::whole" in names:
            page.mouse.click(middle, box["y"] + y)
            break
    page.wait_for_selector("section.panel h2:has-text('aten::whole')")
    assert "ProfilerStep#2" in names
    page.keyboard.press("Escape")
    page.wait_for_selector("text=How to read this")


def test_gaps_have_a_cause(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::first"):
            b.launch("kernel_a", duration=100)
        b.wait(1000)
        with b.op("aten::second"):
            b.launch("kernel_b", duration=100)
    page = page_of(b.build(), "#view=timeline").page
    box = page.locator(".canvas-box canvas").bounding_box()
    page.mouse.move(box["x"] + _GUTTER + (box["width"] - _GUTTER) / 2, box["y"] + 58)
    card = page.locator(".hover-card")
    card.wait_for()
    text = card.inner_text()
    assert "GPU 0 waits for the host" in text
    assert "next: kernel_b" in text


def test_the_hover_card_stands_beside_the_pointer(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    box = page.locator(".canvas-box canvas").bounding_box()
    for x, side in ((_GUTTER + 200, "right"), (box["width"] - 60, "left")):
        page.mouse.move(box["x"] + x, box["y"] + 58)
        page.locator(".hover-card").wait_for()
        page.wait_for_timeout(50)
        card = page.locator(".hover-card").bounding_box()
        assert 0 < card["y"] - (box["y"] + 58) < 40
        near = card["x"] - box["x"] - x if side == "right" else box["x"] + x - (card["x"] + card["width"])
        assert 0 < near < 400, (side, card)
        assert card["x"] + card["width"] <= box["x"] + box["width"]


def test_the_length_of_a_stretch_stands_alone_on_the_ruler(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    box = canvas.bounding_box()
    # Every text that the last frame drew on the ruler, with the room it takes.
    page.evaluate(
        """() => {
      const { fillText, putImageData } = CanvasRenderingContext2D.prototype
      CanvasRenderingContext2D.prototype.putImageData = function (...all) {
        window.drawn = []
        return putImageData.apply(this, all)
      }
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
        if (y < 20 && text) window.drawn.push([x, x + this.measureText(text).width, text])
        return fillText.call(this, text, x, y, ...rest)
      }
    }"""
    )
    for from_, to in ((100, 500), (150, 620), (30, 60), (700, 1080)):
        page.mouse.move(box["x"] + _GUTTER + from_, box["y"] + 12)
        page.mouse.down()
        page.mouse.move(box["x"] + _GUTTER + to, box["y"] + 12, steps=3)
        page.mouse.up()
        page.wait_for_timeout(100)
        labels = sorted(page.evaluate("window.drawn"))
        measured = page.locator("section.panel h2").inner_text().removesuffix(" measured")
        assert measured in [text for _, _, text in labels]
        assert len(labels) > 4
        assert all(left[1] < right[0] for left, right in pairwise(labels)), labels
        assert labels[-1][1] <= box["width"]


def test_keys_zoom_and_move(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    canvas.focus()
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_timeout(500)
    low, high = view_of(page)
    page.keyboard.down("d")
    page.wait_for_timeout(250)
    page.keyboard.up("d")
    page.wait_for_timeout(500)
    moved = view_of(page)
    assert moved[0] > low
    assert abs((moved[1] - moved[0]) - (high - low)) <= 2
    page.keyboard.down("w")
    page.wait_for_timeout(250)
    page.keyboard.up("w")
    page.wait_for_timeout(500)
    zoomed = view_of(page)
    assert zoomed[1] - zoomed[0] < moved[1] - moved[0]
    page.keyboard.press("0")
    page.wait_for_timeout(500)
    assert view_of(page)[1] - view_of(page)[0] > high - low


def test_arrow_keys_walk_along_and_into_calls(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step(), b.op("outer"):
        with b.op("inner_one", head=50):
            pass
        with b.op("inner_two", head=50):
            pass
    page = page_of(b.build(), "#view=timeline").page
    page.locator(".canvas-box canvas").focus()
    panel = page.locator("section.panel h2").first
    for key, name in (
        ("ArrowRight", "ProfilerStep#2"),
        ("ArrowDown", "outer"),
        ("ArrowDown", "inner_one"),
        ("ArrowRight", "inner_two"),
        ("ArrowLeft", "inner_one"),
        ("ArrowUp", "outer"),
    ):
        page.keyboard.press(key)
        until(page, f"document.querySelector('section.panel h2').textContent === '{name}'")
    assert panel.inner_text() == "outer"


def test_a_dragged_stretch_is_measured(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    box = page.locator(".canvas-box canvas").bounding_box()
    y = box["y"] + 12
    page.mouse.move(box["x"] + _GUTTER + 100, y)
    page.mouse.down()
    page.mouse.move(box["x"] + _GUTTER + 500, y, steps=5)
    page.mouse.up()
    panel = page.locator("section.panel")
    panel.get_by_text("measured").wait_for()
    text = panel.inner_text()
    assert re.search(r"\d+ kernels, copies and sets", text)
    shares = [float(share) for share in re.findall(r"\((\d+(?:\.\d+)?) %\)", text)]
    assert sum(shares) <= 101
    assert "Most device time" in text


def test_wheel_zooms_with_control_and_scrolls_without(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline", height=420).page
    box = page.locator(".canvas-box canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 90)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_timeout(500)
    before = view_of(page)
    page.mouse.wheel(200, 0)
    page.wait_for_timeout(500)
    after = view_of(page)
    assert after[0] > before[0]
    picture = page.locator(".canvas-box canvas").screenshot()
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(200)
    assert page.locator(".canvas-box canvas").screenshot() != picture
    assert view_of(page) == after


def test_two_fingers_zoom(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline", has_touch=True).page
    box = page.locator(".canvas-box canvas").bounding_box()
    session = page.context.new_cdp_session(page)
    y = box["y"] + 120

    def touch(kind: str, *xs: float) -> None:
        session.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": box["x"] + x, "y": y, "id": i} for i, x in enumerate(xs)]},
        )

    touch("touchStart", 500, 600)
    for spread in (20, 60, 100):
        touch("touchMove", 500 - spread, 600 + spread)
    touch("touchEnd")
    page.wait_for_timeout(500)
    low, high = view_of(page)
    whole = training().end.max()
    assert high - low < whole / 2


def test_lanes_fold(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline").page
    canvas = page.locator(".canvas-box canvas")
    open_ = canvas.screenshot()
    page.get_by_role("button", name="Fold / unfold").click()
    page.wait_for_timeout(100)
    folded = canvas.screenshot()
    assert folded != open_
    page.get_by_role("button", name="Fold / unfold").click()
    page.wait_for_timeout(100)
    assert canvas.screenshot() != folded


def test_what_is_left_out_is_said(page_of: Open) -> None:
    page = page_of(training(), "#view=timeline", max_slices=200).page
    text = page.get_by_test_id("left-out").first.inner_text()
    total = len(training())
    assert f"{total - 200:,} slices not shown" in text
    assert "operator" in text


def test_a_deep_link_opens_its_stretch(page_of: Open) -> None:
    page = page_of(training(), "#t=100000-300000").page
    low, high = nudge(page)
    assert 50_000 < low < 150_000
    assert 250_000 < high < 350_000
