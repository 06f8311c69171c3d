"""What a recorder knows of the CUDA graphs that a trace replays: from which place in the program each node was captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["COPY", "KERNEL", "SET", "CapturedGraphs", "captured_graphs"]

KERNEL, COPY, SET = 0, 1, 2
"""Kinds of nodes."""

_MOST = 1_000_000
_LONGEST_TREE = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraphs:
    """Graphs that were captured before the recording, and their replays in it.

    Attributes:
        tree: contexts that something was captured in: a tree file in base64, with a leaf for each place.
        kernels: names. graphs: nodes of each graph in the order of their capture: kind, row of
            the name or -1, number of the place.
        replays: which graph each launch of one in the recording was, in their order; -1 for one that is not here.
    """

    tree: str
    kernels: list[str]
    graphs: list[list[tuple[int, int, int]]]
    replays: list[int]


def captured_graphs(value: Any) -> CapturedGraphs | None:
    """As a trace's metadata hold them; None for anything else. The file is untrusted."""
    import msgspec  # what only records needs none

    try:
        found = msgspec.convert(value, CapturedGraphs)
    except msgspec.ValidationError:
        return None
    nodes = [node for graph in found.graphs for node in graph]
    sound = (
        len(found.tree) <= _LONGEST_TREE
        and len(nodes) <= _MOST
        and all(-1 <= graph < len(found.graphs) for graph in found.replays)
        and all(
            kind in (KERNEL, COPY, SET) and -1 <= name < len(found.kernels) and place >= 0
            for kind, name, place in nodes
        )
    )
    return found if sound else None
