"""A report in a notebook: the page in a frame of its own, which can neither touch the notebook nor be touched by it."""

from __future__ import annotations

import html

from lanewise.errors import MissingDependencyError
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.page.html import report_html
from lanewise.show.safe_text import clean

__all__ = ["NotebookView"]

# A notebook keeps its outputs inside itself: large timelines belong into a file.
_MAX_SLICES = 150_000


class NotebookView:
    """What a notebook shows for a trace: `NotebookView(facts, report)` as the last line of a cell.

    Args:
        facts, report: what to show.
        height: of the frame, pixels.
        max_slices: above this number the timeline leaves out the shortest slices, and says so.
    """

    def __init__(self, facts: Facts, report: Report, *, height: int = 720, max_slices: int = _MAX_SLICES) -> None:
        self.facts, self.report, self.height, self.max_slices = facts, report, height, max_slices

    def __repr__(self) -> str:
        return self.report.verdict

    def _repr_html_(self) -> str:
        try:
            page = report_html(self.facts, self.report, max_slices=self.max_slices)
        except MissingDependencyError as error:
            return f"<p>{html.escape(clean(self.report.verdict, 700))}</p><p>{html.escape(str(error))}</p>"
        # The sandbox gives the frame an origin of its own: no cookies, no access to the notebook's page.
        return (
            f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:1px solid #ccc" title="lanewise report"></iframe>'
        )
