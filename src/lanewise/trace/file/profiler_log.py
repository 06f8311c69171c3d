"""What the profiler's own log lines say, however a version spells it. Standard library alone."""

from __future__ import annotations

import re

__all__ = ["says_dropped"]

# Of Kineto and its forks: "Exceeded max GPU buffer count (100 > 100)", "12 events out of range", "Out-of-range = 12",
# "dropped 3 records". "Out-of-range = 0" says the opposite.
_DROPPED = re.compile(
    r"out[\s_-]*of[\s_-]*range(?!\s*[=:]\s*0\b)"
    r"|exceed\w*\s+(?:the\s+)?max\w*\s+(?:gpu\s+)?buffer"
    r"|\b(?:dropp(?:ed|ing)|discard(?:ed|ing)|lost)\b[^.;]{0,40}\b(?:records?|activit(?:y|ies)|events?|buffers?|samples?)\b"
    r"|\b(?:records?|activit(?:y|ies)|events?|buffers?|samples?)\b[^.;]{0,40}\b(?:dropped|discarded|lost)\b",
    re.IGNORECASE,
)
_NONE = re.compile(r"(?<![\d.,])0\s+(?:\w+\s+){0,3}(?:out[\s_-]*of[\s_-]*range|dropped|discarded|lost)", re.IGNORECASE)


def says_dropped(line: str) -> bool:
    """Whether a line says that records were dropped or lay outside of the recording."""
    return _DROPPED.search(line) is not None and _NONE.search(line) is None
