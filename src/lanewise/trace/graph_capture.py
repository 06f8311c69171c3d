"""When graphs are captured: what is launched then is only written down, and runs once the graph is replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.intervals import Union, union

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["captures", "in_capture"]


def captures(trace: Trace) -> Union:
    """Time between the beginning and the end of a capture, ns."""
    build = trace.links.calls("graph_build")
    if len(build) == 0:
        return Union.empty()
    begin = np.sort(trace.start[build[trace.name_mask("BeginCapture")[trace.name[build]]]])
    end = np.sort(trace.end[build[trace.name_mask("EndCapture")[trace.name[build]]]])
    both = min(len(begin), len(end))
    return union(begin[:both], end[:both])


def in_capture(trace: Trace, calls: np.ndarray) -> np.ndarray:
    """Whether each of some launches is made while a graph is captured, bool, shape (calls,)."""
    spans = captures(trace)
    if len(spans.start) == 0:
        return np.zeros(len(calls), dtype=bool)
    at = np.searchsorted(spans.start, trace.start[calls], side="right") - 1
    return (at >= 0) & (trace.start[calls] <= spans.end[np.maximum(at, 0)])
