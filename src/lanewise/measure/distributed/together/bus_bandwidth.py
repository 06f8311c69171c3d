"""How fast collectives move data: algorithm and bus bandwidth, as nccl-tests defines them.

Algorithm bandwidth is the size of the message over the time. What the links carry for it depends on the collective and on
the number of ranks; with that factor it is the bus bandwidth, which can be compared with the rate of a link whatever the
collective and the number of ranks (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re

__all__ = ["bus_factor", "kind_of"]

_KINDS = (
    ("all-reduce", re.compile(r"all_?reduce")),
    ("reduce-scatter", re.compile(r"reduce_?scatter")),
    ("all-gather", re.compile(r"all_?gather")),
    ("all-to-all", re.compile(r"all_?to_?all")),
    ("broadcast", re.compile(r"broadcast")),
    ("reduce", re.compile(r"reduce")),
    ("gather", re.compile(r"gather")),
    ("scatter", re.compile(r"scatter")),
    ("barrier", re.compile(r"barrier")),
    ("send and receive", re.compile(r"^i?(?:send|recv)")),
)


def kind_of(name: str) -> str:
    """The collective in the words of the field: backends and versions of torch spell it differently."""
    lower = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(lower)), name)


def bus_factor(kind: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth of one collective among so many ranks; 0 where none is defined."""
    if ranks < 2:
        return 0.0
    if kind == "all-reduce":
        return 2.0 * (ranks - 1) / ranks
    if kind in ("reduce-scatter", "all-gather", "all-to-all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if kind in ("broadcast", "reduce", "send and receive") else 0.0
