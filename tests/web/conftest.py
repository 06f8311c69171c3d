"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright; they skip where there is none.

Its headless shell draws the same and takes half the processor time: the browser around the pages is never seen.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.errors import MissingDependencyError
from lanewise.show.page.html import bundle, report_html
from lanewise.trace.model import Trace
from tests.web.waiting import until

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Watched:
    """A page with everything that went wrong on it."""

    page: Any
    problems: list[str] = field(default_factory=list[str])

    def ready(self) -> None:
        """Wait until all blocks are unpacked."""
        until(self.page, "document.querySelectorAll('[id^=block-]').length === 0")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of the page.

    It ends with them: while Playwright runs, the thread has a running event loop, and nobody else's `asyncio.run` works.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'lanewise[dev]'")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs Chromium: apt-get install {BROWSERS[0]}")
    try:
        bundle()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Watched]]:
    """Opens an address; the test fails at its end if the page logged an error, raised one or opened a dialog."""
    contexts: list[Any] = []
    opened: list[Watched] = []

    def open_(address: str, *, width: int = 1280, height: int = 800, **options: Any) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(45_000)
        watched = Watched(page)
        opened.append(watched)
        page.on(
            "console",
            lambda message: watched.problems.append(message.text) if message.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: watched.problems.append(str(error)))

        def refuse(dialog: Any) -> None:
            watched.problems.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("dialog", refuse)
        page.goto(address)
        return watched

    yield open_
    problems = [problem for watched in opened for problem in watched.problems]
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def page_of(open_page: Callable[..., Watched], tmp_path: Path) -> Callable[..., Watched]:
    """Writes the page of a trace to a file and opens it from disk."""

    def page_of(trace: Trace, hash_: str = "", *, max_slices: int | None = None, **options: Any) -> Watched:
        facts = facts_of(trace)
        limit = {} if max_slices is None else {"max_slices": max_slices}
        path = tmp_path / "report.html"
        path.write_text(report_html(facts, report_of(facts), **limit), encoding="utf-8")
        watched = open_page(path.as_uri() + hash_, **options)
        watched.ready()
        return watched

    return page_of
