"""A comparison as JSON: the public schema, as the structs define it."""

from __future__ import annotations

import msgspec

from lanewise.compare.model import Comparison
from lanewise.show.report.json import to_plain

__all__ = ["diff_json"]


def diff_json(comparison: Comparison) -> str:
    """The comparison, indented; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(to_plain(comparison)), indent=2).decode()
