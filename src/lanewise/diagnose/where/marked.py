"""The events that findings are about, whole: a report names one of each place."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.engine import evaluate
from lanewise.diagnose.settings import Settings
from lanewise.measure.facts import Facts
from lanewise.report.model import Report

__all__ = ["marked_events"]


def marked_events(facts: Facts, report: Report) -> dict[str, np.ndarray]:
    """Event ids by code of the finding, ascending, for the findings of a report that speak of events."""
    codes = [finding.code for finding in report.findings if any(place.events for place in finding.places)]
    found = evaluate(facts, Settings(select=tuple(codes)))[0] if codes else []
    return {rule.code: np.unique(np.asarray(outcome.events)) for rule, outcome in found if len(outcome.events)}
