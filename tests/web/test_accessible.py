"""No view breaks a rule of axe, in either colour, on a desk and on a phone; and none scrolls sideways on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.bundled import bundled_path
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.diagnose.sections.ranks import told_of_job
from lanewise.measure.distributed.gathering.read_ranks import read_ranks
from lanewise.show.diff.diff_page import diff_html
from lanewise.show.page.html import report_html
from lanewise.show.page.job_page import job_html
from lanewise.show.plan.plan_page import plan_html
from lanewise.trace.reader import read
from tests.show.plan.test_plan_page import plan
from tests.support.compared import base_of
from tests.support.corpus import REPOSITORY
from tests.web.traces import training
from tests.web.waiting import until

AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"
TABLES = ("overlap", "critical-path", "memory")
VIEWS = ("overview", "timeline", "calls", "tables", "predicted", *(f"tables&table={name}" for name in TABLES))
PHONE, DESK = 390, 1280

_VIOLATIONS = """async () => {
  // The size of targets is no part of axe's defaults, but of Lighthouse's.
  const rules = { 'target-size': { enabled: true } }
  const found = await axe.run(document, { resultTypes: ['violations'], rules })
  return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3).join(' | ')}`)
}"""


_CUT = """() => {
  const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement))
  return [...document.querySelectorAll('main h1, main h2, main p, main li, main td, main th, main button')]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
    .filter((e) => !e.closest('svg') && !scrolls(e.closest('main > *') === e ? null : e.parentElement))
    .map((e) => `${e.tagName} ${e.textContent.slice(0, 60)}`)
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    facts = facts_of(read(str(bundled_path("mnist")), cache=False))
    report = report_of(facts)
    before, after = facts_of(training()), facts_of(training(name="aten::add"))
    told = told_of_job(read_ranks([str(REPOSITORY / "tests" / "data" / "ranks2")], cache=False), cache=False)
    changed = report_of(after)
    written = {
        "trace": report_html(facts, report),
        "compared": diff_html(after, changed, base_of(before, after, changed)),
        "plan": plan_html(plan()),
        "job": job_html(told, "job", {}),
    }
    for name, text in written.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in written}


def visited(watched: Any, path: Path, name: str) -> Any:
    """Each view of a page, shown, by name."""
    page = watched.page
    if name in ("plan", "job"):
        page.locator("h1").first.wait_for()
        yield name
        return
    watched.ready()
    for view in VIEWS if name == "trace" else ("overview", "compare"):
        page.evaluate(f"location.hash = '#view={view}'")
        page.locator("main").wait_for()
        until(page, "!document.querySelector('main.loading')")
        page.wait_for_timeout(60)
        yield view


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["trace", "compared", "plan", "job"])
def test_axe_finds_nothing(open_page: Callable[..., Any], pages: dict[str, Path], name: str, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci in web/")
    watched = open_page(pages[name].as_uri(), width=DESK, color_scheme=scheme, bypass_csp=True)
    found: dict[str, list[str]] = {}
    watched.page.add_script_tag(path=str(AXE))
    for view in visited(watched, pages[name], name):
        if broken := watched.page.evaluate(_VIOLATIONS):
            found[view] = broken
    assert found == {}


@pytest.mark.parametrize("name", ["trace", "compared", "plan", "job"])
def test_a_phone_shows_every_page_whole(open_page: Callable[..., Any], pages: dict[str, Path], name: str) -> None:
    watched = open_page(pages[name].as_uri(), width=PHONE, height=800, has_touch=True, is_mobile=True)
    for view in visited(watched, pages[name], name):
        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE, view
        # Text that is cut off at the side of what holds it, without a way to scroll to it.
        cut = watched.page.evaluate(_CUT)
        assert cut == [], view
