"""The page of every real H100 trace opens, shows every view, and logs no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lanewise.trace.reader import read
from tests.support.corpus import DATA, H100

Open = Callable[..., Any]

TRACES = sorted(
    {
        path.name.removesuffix(".json.gz")
        for folder in (DATA, H100)
        for path in folder.glob("*.json.gz")
        if path.name != "truth.json.gz"
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES or [pytest.param("none", marks=pytest.mark.skip(reason="no corpus here"))])
def test_the_page_opens_without_an_error(name: str, page_of: Open) -> None:
    from tests.support.corpus import trace_path

    page = page_of(read(str(trace_path(name)), cache=False)).page
    assert page.locator("h1").inner_text()
    for view, sign in (("timeline", ".canvas-box canvas"), ("calls", ".flame canvas"), ("tables", "tbody tr")):
        page.evaluate(f"location.hash = '#view={view}'")
        page.locator(sign).first.wait_for()
    page.evaluate("location.hash = '#view=timeline'")
    page.locator(".canvas-box canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "f", "m", "0"):
        page.keyboard.press(key)
        page.wait_for_timeout(20)
