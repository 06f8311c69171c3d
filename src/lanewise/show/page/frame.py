"""The page inside of another one, in a frame of its own, which can neither touch that one nor be touched by it."""

from __future__ import annotations

import html

__all__ = ["frame"]


def frame(page: str, height: int) -> str:
    """An element that shows a page. `height` in pixels."""
    # The sandbox gives the frame an origin of its own: no cookies, no access to the page around it.
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{height}px;border:1px solid #ccc" title="lanewise report"></iframe>'
    )
