"""The first screen, and the frame around all views."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lanewise.diagnose.explain import explain
from lanewise.micro import with_micro
from lanewise.report.gain import helps
from tests.support.builder import TraceBuilder
from tests.web.traces import training
from tests.web.waiting import until

Open = Callable[..., Any]

VIEWS = (
    "view=overview",
    "view=timeline",
    "view=calls",
    *(f"view=tables&table={name}" for name in ("kernels", "operators", "api", "copies", "memory")),
)


def test_it_says_what_explain_says_in_the_same_order(page_of: Open) -> None:
    trace = training()
    report = explain(trace)
    page = page_of(trace).page
    assert page.locator("h1").inner_text() == with_micro(report.verdict)
    headings = page.locator("h2").all_inner_texts()
    order = [headings.index(h) for h in ("Can you trust it?", "What to do, most to gain first", "The steps")]
    assert order == sorted(order)
    on = [f.code for f in report.findings if helps(f)]
    assert page.locator("ol.cards > li.card:not(.small-card) .code").all_inner_texts() == on
    assert on
    first = next(f for f in report.findings if f.code == on[0])
    card = page.locator(f"#finding-{on[0]}")
    assert with_micro(first.title) in card.inner_text()
    assert page.locator(".step-bars li").count() == len(trace.steps)


def test_a_run_without_a_gpu_is_shown_as_one(page_of: Open) -> None:
    b = TraceBuilder(metadata={})
    for _ in range(4):
        with b.step(), b.op("aten::linear"), b.op("aten::mm", dims=[[64, 64], [64, 64]], types=["float", "float"]):
            b.wait(50)
        b.row(
            "memory",
            time=int(b.now * 1000),
            lane=0,
            bytes=1000,
            address=1,
            allocated=1000,
            reserved=0,
            device_type=0,
            device_id=-1,
        )
    trace = b.build()
    report = explain(trace)
    assert report.statements
    page = page_of(trace).page
    text = page.locator("main").inner_text()
    assert text.startswith("no GPU · 4 steps")
    for statement in report.statements:
        assert str(statement) in text
    assert "GPU loses" in text
    page.evaluate("location.hash = '#view=tables'")
    page.locator("tbody tr").first.wait_for()
    assert page.get_by_role("tab").all_inner_texts() == ["On the CPU", "Operators", "Memory"]
    page.locator("tbody tr").first.click()
    assert "aten::mm" in page.get_by_label("Selected row").inner_text()
    page.get_by_role("tab", name="Operators").click()
    assert not [heading for heading in page.locator("th").all_inner_texts() if "device" in heading]
    page.get_by_role("tab", name="Memory").click()
    assert "reserved" not in page.locator("figcaption").inner_text()
    page.evaluate("location.hash = '#view=timeline'")
    page.get_by_text("No GPU took part").wait_for()


def test_the_shares_of_the_bar_are_readable_without_colour(page_of: Open) -> None:
    page = page_of(training()).page
    label = page.locator(".verdict .class-bar").get_attribute("aria-label")
    assert re.search(r"waits for the host \d+ %", label)
    images = page.evaluate(
        "[...document.querySelectorAll('.verdict .class-part')].map(e => getComputedStyle(e).backgroundImage)"
    )
    assert len(images) > 1
    assert len(set(images)) == len(images)


def test_every_view_is_reached_and_left_by_keyboard(page_of: Open) -> None:
    page = page_of(training()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to the content"
    for name in ("Overview", "Timeline", "Calls", "Tables"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == name
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Kernels")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Tables"
    page.go_back()
    assert page.locator("nav a[aria-current=page]").inner_text() == "Overview"


def test_light_and_dark_follow_the_system_until_told_otherwise(page_of: Open) -> None:
    page = page_of(training(), color_scheme="dark").page
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    button = page.get_by_role("button", name=re.compile("Theme"))
    button.click()
    assert page.evaluate(theme) == "light"
    button.click()
    assert page.evaluate(theme) == "dark"
    button.click()
    page.emulate_media(color_scheme="light")
    until(page, f"{theme} === 'light'")


def test_it_prints_without_its_controls(page_of: Open) -> None:
    page = page_of(training()).page
    page.emulate_media(media="print")
    assert not page.locator("header.top").is_visible()
    assert page.locator("h1").is_visible()


def test_text_has_enough_contrast_in_both_themes(page_of: Open) -> None:
    page = page_of(training()).page
    for view in VIEWS:
        page.evaluate(f"location.hash = '#{view}'")
        page.locator("main").wait_for()
        page.wait_for_timeout(80)
        row = page.locator("main tr.clickable").first
        if row.count():
            row.click()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            until(page, f"document.documentElement.dataset.theme === '{scheme}'")
            worst = page.evaluate(_CONTRAST)
            assert worst["ratio"] >= 4.5, (view, scheme, worst)


def test_the_tab_key_reaches_everything_shows_where_it_is_and_comes_round(page_of: Open) -> None:
    page = page_of(training()).page
    for view in VIEWS:
        page.evaluate(f"location.hash = '#{view}'")
        page.locator("main").wait_for()
        page.wait_for_timeout(80)
        # The wish of a view to have the focus in its canvas aside, a page begins at its top.
        page.evaluate("document.activeElement.blur()")
        wanted = page.evaluate(_FOCUSABLE)
        reached: set[int] = set()
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
            at = page.evaluate(_FOCUSED)
            if at is None:  # past the last one
                continue
            assert at["outline"], (view, at)
            assert at["name"], (view, at)
            reached.add(at["index"])
        assert len(reached) == wanted, view


def test_a_narrow_screen_does_not_scroll_sideways(page_of: Open) -> None:
    page = page_of(training(), width=390, height=800).page
    for view in VIEWS:
        page.evaluate(f"location.hash = '#{view}'")
        page.locator("main").wait_for()
        page.wait_for_timeout(80)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        # A button is as high as its line, or two of them: words are not broken into letters.
        assert (
            page.evaluate("Math.max(...[...document.querySelectorAll('button:not(.sort)')].map(e => e.offsetHeight))")
            < 60
        )


# What the Tab key should reach, numbered in the order of the document.
_FOCUSABLE = """() => {
  let number = 0
  for (const e of document.querySelectorAll('a[href], button, input, select, summary, [tabindex]'))
    if (e.tabIndex >= 0 && !e.disabled && e.checkVisibility()) e.dataset.order = number++
  return number
}"""

_FOCUSED = """() => {
  const e = document.activeElement
  if (e === document.body || e.dataset.order === undefined) return null
  const style = getComputedStyle(e)
  return {
    index: Number(e.dataset.order),
    outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1,
    name: (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim().slice(0, 60),
    tag: e.tagName,
  }
}"""

_CONTRAST = """() => {
  const number = (text) => text.match(/[\\d.]+/g).map(Number)
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const c = number(getComputedStyle(e).backgroundColor)
      if (c.length === 3 || c[3] > 0.99) return c
    }
    return [255, 255, 255]
  }
  let worst = { ratio: 99, text: '' }
  for (const e of document.querySelectorAll('p, h1, h2, li span, td, th, a, button, summary, dt, dd')) {
    if (e.closest('.class-bar') || !e.textContent.trim() || !e.offsetParent) continue
    const a = light(number(getComputedStyle(e).color)), b = light(back(e))
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    if (ratio < worst.ratio) worst = { ratio, text: e.textContent.slice(0, 60), tag: e.tagName }
  }
  return worst
}"""
