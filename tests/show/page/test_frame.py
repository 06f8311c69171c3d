"""The page in a notebook lies in a frame that cannot touch the notebook."""

from __future__ import annotations

import html
import re

import pytest

from lanewise.diagnose.explain import facts_of
from lanewise.errors import MissingDependencyError
from lanewise.notebook import NotebookView
from lanewise.show.page.html import bundle
from tests.web.traces import training


def test_the_frame_is_sandboxed_and_holds_the_whole_page() -> None:
    try:
        bundle()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    facts = facts_of(training(2, name='"><script>alert(1)</script>'))
    text = NotebookView(facts).html()
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" [^<>]*></iframe>', text)
    assert found
    assert html.unescape(found[1]).startswith("<!doctype html>")
    assert "allow-same-origin" not in text
