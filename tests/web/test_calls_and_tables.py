"""Trees and tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.bundled import bundled_path
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.measure.facts import Facts
from lanewise.report.quantity import format_quantity
from lanewise.show.page.html import report_html
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder
from tests.web.traces import training
from tests.web.waiting import until

Open = Callable[..., Any]


def test_the_tree_adds_up_to_the_device_time_in_every_view(page_of: Open) -> None:
    trace = read(str(bundled_path("mnist")), cache=False)
    page = page_of(trace, "#view=calls").page
    totals = set()
    for name in ("Program", "As it ran", "Kernels, and who calls them"):
        page.get_by_role("tab", name=name, exact=True).click()
        page.locator("select").select_option("device")
        found = re.search(r"Device time in all: ([\d.]+ \w+)", page.locator("main").inner_text())
        assert found
        totals.add(found[1])
    assert len(totals) == 1


def test_a_node_opens_and_shows_callers_and_callees(page_of: Open) -> None:
    page = page_of(training(), "#view=calls").page
    row = page.locator("tr[aria-level]", has_text="aten::mul").first
    row.click()
    picked = page.get_by_label("Selected node")
    assert "aten::mul" in picked.inner_text()
    picked.get_by_role("button", name="Callers and callees").click()
    sandwich = page.get_by_label("Callers and callees", exact=True)
    assert "aten::mul from both sides" in sandwich.inner_text()
    assert sandwich.locator("canvas").count() == 2
    picked.get_by_role("button", name="Show whole").click()
    page.get_by_role("button", name="Whole tree").click()


def test_the_icicle_answers_to_keys(page_of: Open) -> None:
    page = page_of(training(), "#view=calls").page
    page.locator(".flame canvas").first.focus()
    page.keyboard.press("ArrowDown")
    first = page.get_by_label("Selected node").locator(".slice-name").inner_text()
    page.keyboard.press("ArrowDown")
    second = page.get_by_label("Selected node").locator(".slice-name").inner_text()
    assert first != second
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Whole tree").is_visible()


def test_the_tree_table_opens_and_closes_by_keys(page_of: Open) -> None:
    page = page_of(training(), "#view=calls").page
    row = page.locator("tr[aria-expanded=true]").first
    before = page.locator("tr[aria-level]").count()
    row.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("tr[aria-level]").count() < before
    page.keyboard.press("ArrowRight")
    assert page.locator("tr[aria-level]").count() == before


def test_source_lines_stand_beside_a_selected_frame(open_page: Open, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=window.pwned=1></script><script>window.pwned=1</script>"
    (tmp_path / "train.py").write_text("\n" * 10 + f"def train():\n    # {hostile}\n    step()\n")
    b = TraceBuilder()
    with b.step(), b.frame("train.py(11): train"), b.frame("gone.py(1): f"), b.op("aten::mul"):
        b.launch("mul_kernel")
    facts = facts_of(b.build())
    path = tmp_path / "report.html"
    path.write_text(report_html(facts, report_of(facts), sources=tmp_path), encoding="utf-8")
    page = open_page(path.as_uri() + "#view=calls").page
    page.locator("tr[aria-level]", has_text="train.py").first.click()
    pane = page.get_by_label("Source", exact=True)
    assert pane.locator(".here").inner_text().split() == ["▸11", "def", "train():"]
    assert hostile in pane.inner_text()
    assert page.evaluate("window.pwned") is None
    page.locator("tr[aria-level]", has_text="aten::mul").first.click()
    assert "Called from train.py(11): train" in page.get_by_label("Selected node").inner_text()
    page.locator("tr[aria-level]", has_text="gone.py").first.click()
    assert "no source lines of this frame" in page.get_by_label("Selected node").inner_text()
    assert "left out: 1 (no such file" in page.locator("main").inner_text()


def test_tables_sort_filter_and_agree_with_the_measures(page_of: Open) -> None:
    trace = read(str(bundled_path("mnist")), cache=False)
    kernels = Facts(trace).kernels
    page = page_of(trace, "#view=tables&table=kernels").page
    rows = page.locator("tbody tr:not(.filler)")
    assert rows.count() == kernels.height
    page.get_by_role("button", name="count").click()
    counts = [int(text.replace(",", "")) for text in page.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    page.get_by_role("button", name="count").click()
    counts = [int(text.replace(",", "")) for text in page.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert counts == sorted(counts)
    page.get_by_label("Filter Kernels").fill("gemm")
    assert 0 < rows.count() < kernels.height
    titles = page.evaluate("[...document.querySelectorAll('tbody bdi')].map(e => e.title)")
    assert all("gemm" in f"{name} {family}" for name, family in zip(titles[::2], titles[1::2], strict=True))


def test_a_table_is_copied_as_markdown(page_of: Open) -> None:
    watched = page_of(training(), "#view=tables&table=kernels")
    page = watched.page
    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_text("copied as Markdown").wait_for()
    page.get_by_label("Filter Kernels").focus()
    page.keyboard.press("Control+v")
    pasted = page.get_by_label("Filter Kernels").input_value()
    assert pasted.startswith("| kernel | family | count |")
    assert "mul\\_kernel" in pasted


def test_a_kernel_shows_how_its_durations_are_distributed(page_of: Open) -> None:
    page = page_of(read(str(bundled_path("mnist")), cache=False), "#view=tables&table=kernels").page
    page.locator("tbody tr").first.click()
    chart = page.get_by_label("Selected row").locator("svg")
    assert "Durations of" in chart.get_attribute("aria-label")
    bars = page.evaluate("[...document.querySelectorAll('rect.bar')].filter(r => r.getAttribute('height') > 0).length")
    assert bars >= 1
    page.get_by_text("Find in the timeline").click()
    page.wait_for_selector("section.panel h2")
    assert "match" in page.get_by_test_id("matches").inner_text()


def test_memory_shows_its_peak(page_of: Open) -> None:
    page = page_of(training(), "#view=tables&table=memory").page
    text = page.locator("figure figcaption").inner_text()
    assert "GPU 0 memory allocated: at most 3.00 MB" in text
    # A value is read off the axis, not only the highest one.
    rungs = page.locator("figure .rung text").all_text_contents()
    assert len(rungs) >= 2
    assert all(rung.strip().endswith("B") for rung in rungs)
    page.locator("figcaption a").click()
    page.wait_for_selector(".canvas-box canvas")


def test_a_long_table_draws_only_what_is_visible(page_of: Open) -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(900):
            with b.op(f"aten::op_{i:04}"):
                pass
    page = page_of(b.build(), "#view=tables&table=operators").page
    assert page.locator("tbody tr:not(.filler)").count() < 200
    page.evaluate("document.querySelector('.table-scroll').scrollTo(0, 1e6)")
    page.wait_for_timeout(100)
    assert page.locator("tbody tr:not(.filler)").count() < 200
    # The table is as high as all its rows, and shows those of the place that it was scrolled to.
    rows = page.locator("tbody tr:not(.filler)")
    assert page.evaluate("document.querySelector('.table-scroll').scrollHeight") > 900 * 26
    box, last = page.locator(".table-scroll").bounding_box(), rows.last.bounding_box()
    assert box["y"] < last["y"] < box["y"] + box["height"]
    page.evaluate("document.querySelector('.table-scroll').scrollTo(0, 450 * 26)")
    page.wait_for_timeout(100)
    top = page.evaluate(
        """() => {
      const box = document.querySelector('.table-scroll').getBoundingClientRect()
      return [...document.querySelectorAll('tbody tr:not(.filler)')]
        .filter((row) => row.getBoundingClientRect().top >= box.top).length
    }"""
    )
    assert 20 < top < rows.count()


def test_a_table_is_one_stop_of_the_tab_key_and_walked_by_arrows(page_of: Open) -> None:
    page = page_of(training(), "#view=tables&table=operators").page
    assert page.locator("tbody tr[tabindex='0']").count() == 1
    page.locator("tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    current = page.locator("tbody tr.current")
    assert current.count() == 1
    assert current.evaluate("row => row === document.querySelectorAll('tbody tr')[1]")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement === document.querySelector('tbody tr')")


def test_no_column_is_out_of_sight_on_a_desktop(page_of: Open) -> None:
    page = page_of(read(str(bundled_path("mnist")), cache=False)).page
    for hash_ in (
        "",
        "#view=calls",
        *(f"#view=tables&table={name}" for name in ("kernels", "operators", "copies", "roofline")),
    ):
        page.evaluate(f"location.hash = '{hash_}'")
        page.locator("tbody tr").first.wait_for()
        hidden = page.evaluate(
            "[...document.querySelectorAll('.table-scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            ".map(e => e.getAttribute('aria-label') ?? e.textContent.slice(0, 60))"
        )
        assert hidden == [], hash_


def test_rows_of_one_short_name_are_told_apart(page_of: Open) -> None:
    b = TraceBuilder()
    stem = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    with b.step():
        for inner in ("at::native::sum_functor<float>", "at::native::MeanOps<float>"):
            with b.op("aten::sum"):
                b.launch(f"{stem}{inner}, unsigned int, float, 4> >(float)", duration=5)
    page = page_of(b.build(), "#view=tables&table=kernels").page
    names = page.locator("tbody td:first-child").all_inner_texts()
    assert len(names) == len(set(names)) == 2
    assert any("MeanOps" in name for name in names)


def test_a_dot_of_the_roofline_is_named_in_its_table(page_of: Open) -> None:
    page = page_of(read(str(bundled_path("mnist")), cache=False), "#view=tables&table=roofline").page
    assert page.locator("circle.dot").count() == page.locator("tbody tr").count() > 3
    page.locator("circle.dot").first.dispatch_event("click")
    assert page.locator("tbody tr.current").count() == 1
    text = page.locator("tbody tr.current").inner_text()
    assert " x [" in text
    assert "FLOP/s" in text
    page.locator("tbody tr").nth(2).click()
    assert page.locator("circle.picked-dot").count() == 1


def test_what_runs_beside_what_and_what_the_step_waits_for_are_drawn(page_of: Open) -> None:
    trace = training(30)
    facts = Facts(trace)
    page = page_of(trace, "#view=tables&table=overlap").page
    assert f"computes {format_quantity('time', facts.overlap.compute.total)}" in with_us(page, "ul.bars")
    assert "copies" in page.get_by_label("What computation hides").inner_text()
    page.get_by_role("tab", name="Critical path").click()
    path = facts.critical_path()
    page.wait_for_selector(".path-bar span")
    drawn = page.locator(".path-bar span").evaluate_all("all => all.map(e => [e.title, parseFloat(e.style.width)])")
    assert sum(width for _, width in drawn) == pytest.approx(100, abs=0.1)
    kernels = sum(width for title, width in drawn if title.startswith("computes")) / 100
    assert kernels == pytest.approx(path.shares["kernel"], abs=0.02)
    page.locator("tr.clickable").first.click()
    page.get_by_role("link", name="in the timeline").click()
    until(page, "/view=timeline&t=\\d+-\\d+/.test(location.hash)")


def test_who_holds_the_memory_stands_below_its_curve(page_of: Open) -> None:
    page = page_of(read(str(bundled_path("mnist")), cache=False), "#view=tables&table=memory").page
    owners = Facts(read(str(bundled_path("mnist")), cache=False)).memory
    assert owners is not None
    bars = page.get_by_label("Who holds the memory at its peak").locator("li")
    assert bars.count() == min(12, len(owners.owners))
    assert owners.owners[0].operator in bars.first.inner_text()
    assert format_quantity("bytes", owners.owners[0].bytes) in bars.first.inner_text()


def test_many_steps_have_a_histogram_of_their_lengths(page_of: Open) -> None:
    page = page_of(training(30)).page
    page.get_by_text("How long the steps are").click()
    picture = page.get_by_role("img", name="Durations of 30 steps")
    assert picture.count() == 1
    assert "30 in all" in picture.text_content()
    few = page_of(training(4)).page
    assert few.get_by_text("How long the steps are").count() == 0


def with_us(page: Any, where: str) -> str:
    """Text of a part of the page, microseconds as Python writes them."""
    return " ".join(page.locator(where).all_inner_texts()).replace("µs", "us")
