"""What a terminal shows, as HTML: the same text and colours in a `<pre>`, whatever is around it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

from lanewise.micro import with_micro

__all__ = ["text_html"]

_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


def text_html(renderable: RenderableType, *, width: int = 100) -> str:
    """A rich renderable as one escaped element. `width` in characters."""
    console = Console(
        file=StringIO(), record=True, width=width, highlight=False, emoji=False, markup=False, force_jupyter=False
    )
    console.print(renderable)
    return with_micro(console.export_html(inline_styles=True, code_format=_FORMAT))
