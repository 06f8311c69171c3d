"""What a notebook shows for the values that lanewise returns."""

from __future__ import annotations

__all__ = ["Shown"]


class Shown:
    """Shown by a notebook as `NotebookView` draws it, where this is the last line of a cell."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # Drawing is for the rooms above: the value hands itself to the public API.
        from lanewise import NotebookView

        return NotebookView(self).html()
