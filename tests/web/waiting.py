"""Waiting for a page whose policy forbids evaluating text, which Playwright's own wait needs."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["until"]


def until(page: Any, expression: str, *, seconds: float = 15) -> None:
    """Wait until a JavaScript expression is true; fails with the expression otherwise."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not true after {seconds} s: {expression}"
        page.wait_for_timeout(20)
