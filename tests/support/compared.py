"""An earlier run as a page compares with it."""

from __future__ import annotations

from lanewise.compare.diff import diff_explained
from lanewise.diagnose.explain import report_of
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.diff.diff_page import Base

__all__ = ["base_of"]


def base_of(earlier: Facts, facts: Facts, report: Report, labels: tuple[str, str] = ("before", "after")) -> Base:
    """The earlier run, explained and compared."""
    before = report_of(earlier)
    return Base(earlier, before, diff_explained([(labels[0], earlier, before), (labels[1], facts, report)]))
