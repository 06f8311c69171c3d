"""Times as one writes them on a command line."""

from __future__ import annotations

import math
import re

import click

__all__ = ["microseconds"]

_WRITTEN = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(ns|us|µs|μs|ms|s)?\s*", re.IGNORECASE)
_PER_UNIT = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}


def microseconds(text: str) -> float:
    """The type of an option that is a time above zero: `11.9ms`, `1.2s`, `850us`; a number alone is microseconds.

    Returns:
        Microseconds.

    Raises:
        BadParameter: it is no such time.
    """
    written = _WRITTEN.fullmatch(text)
    try:
        time = float(written[1]) * _PER_UNIT[(written[2] or "us").lower()] if written else math.nan
    except ValueError:
        time = math.nan
    if not 0 < time < math.inf:
        raise click.BadParameter(f"{text!r} is not a time: write 11.9ms, 1.2s or 850 (microseconds).")
    return time
