"""A tree as collapsed stacks, the input of flame graph tools: `outermost;...;innermost value`, one stack a line.

The characters `;`, `%` and line breaks inside a name are written as `%3B`, `%25`, `%0A`, `%0D`, so that the text can be
read back without loss.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lanewise.errors import UsageError
from lanewise.tree.model import Tree

__all__ = ["collapsed", "stacks"]


def stacks(tree: Tree, metric: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each node with a positive exclusive value of the metric: the nodes from its root to it, and the value.

    Raises:
        UsageError: a negative value, as in the difference of two trees: a flame graph cannot show it.
    """
    values = tree.value(metric)
    if len(values) and values.min() < 0:
        raise UsageError("this tree is a difference: costs below zero cannot be drawn as a flame graph")
    parent = tree.parent.tolist()
    for node in np.flatnonzero(values > 0).tolist():
        path: list[int] = []
        at = node
        while at >= 0:
            path.append(at)
            at = parent[at]
        yield tuple(reversed(path)), int(values[node])


def collapsed(tree: Tree, metric: str = "device") -> str:
    """The stacks of a tree as text; times in ns. Equal stacks are one line."""
    names = [_escape(text) for text in tree.strings]
    rows: dict[str, int] = {}
    for path, value in stacks(tree, metric):
        key = ";".join(names[int(tree.name[node])] for node in path)
        rows[key] = rows.get(key, 0) + value
    return "".join(f"{key} {value}\n" for key, value in rows.items())


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace(";", "%3B").replace("\n", "%0A").replace("\r", "%0D")
