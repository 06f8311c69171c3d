"""Reads collapsed stacks back, as the tools do that they are for."""

from __future__ import annotations

__all__ = ["parse_collapsed"]


def parse_collapsed(text: str) -> dict[tuple[str, ...], int]:
    """Stacks and values of collapsed text. ValueError for a line without a whole number at its end."""
    result: dict[tuple[str, ...], int] = {}
    for line in text.split("\n"):
        if not line:
            continue
        names, _, value = line.rpartition(" ")
        key = tuple(_unescape(name) for name in names.split(";"))
        result[key] = result.get(key, 0) + int(value)
    return result


def _unescape(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%3B", ";").replace("%25", "%")
