"""What a renderable looks like on a terminal."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

__all__ = ["shown"]


def shown(what: RenderableType, width: int = 160) -> str:
    """The plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()
