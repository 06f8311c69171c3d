"""The page in a notebook lies in a frame that cannot touch the notebook."""

from __future__ import annotations

import html
import re

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.errors import MissingDependencyError
from lanewise.show.page import notebook
from lanewise.show.page.html import bundle
from lanewise.show.page.notebook import NotebookView
from tests.web.traces import training


def test_the_frame_is_sandboxed_and_holds_the_whole_page() -> None:
    try:
        bundle()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    facts = facts_of(training(2, name='"><script>alert(1)</script>'))
    text = NotebookView(facts, report_of(facts))._repr_html_()
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" [^<>]*></iframe>', text)
    assert found
    assert html.unescape(found[1]).startswith("<!doctype html>")
    assert "allow-same-origin" not in text


def test_without_the_page_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(training(2))
    report = report_of(facts)

    def absent(*_: object, **__: object) -> str:
        raise MissingDependencyError("no page <here>")

    monkeypatch.setattr(notebook, "report_html", absent)
    text = NotebookView(facts, report)._repr_html_()
    assert "no page &lt;here&gt;" in text
    assert html.escape(report.verdict) in text
    assert repr(NotebookView(facts, report)) == report.verdict
