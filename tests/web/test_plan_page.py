"""The page of a plan in a browser: it works from disk under its own policy, in both colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.show.plan.plan_page import plan_html
from tests.show.plan.test_plan_page import plan


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_plan_is_a_page_that_needs_nothing_else(open_page: Callable[..., Any], tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "plan.html"
    path.write_text(plan_html(plan()), encoding="utf-8")
    watched = open_page(path.as_uri(), color_scheme=scheme, width=700)
    page = watched.page
    assert page.locator("td.kept").inner_text() == "kept"
    assert "2.50x as fast as it was" in page.locator("h1").inner_text()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light"), "the policy lets the style through"
    assert page.evaluate("document.documentElement.scrollWidth <= 700"), "wide tables scroll by themselves"
