"""Which places of the program became cheaper or dearer: two calling-context trees, aligned from the root down.

Children are matched by identity (kind and name); what is left over is tried twice. A node whose content looks like that
of a left-over node on the other side is the same context under another name. A node whose *children* look like the
left-over nodes of the other side was put in between (an annotation, a compiled region, a wrapper module) or taken out:
its children are then matched across. Only then is a context new or gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from lanewise.compare.matching.labels import stable_name
from lanewise.compare.model import ContextChange, ContextStatus
from lanewise.tree.model import KIND_NAMES, NodeKind, Tree

__all__ = ["compare_contexts"]

# Contexts are places in the program; kernels, copies and waits are compared elsewhere.
_PLACES = (NodeKind.THREAD, NodeKind.FRAME, NodeKind.MODULE, NodeKind.ANNOTATION, NodeKind.OPERATOR, NodeKind.GRAPH)
# Contents are alike from this share of common names on (weighted by cost).
_ALIKE = 0.6
# A context is worth a line if it differs by at least this share of what a step costs, or in what is around it.
_WORTH = 0.01
_SHAPES = frozenset({"renamed", "wrapped", "unwrapped"})
# A place says what one inside of it says already if they differ by as much, up to this share.
_SAID = 0.1
_MAX_ROWS = 40


@dataclass
class _Node:
    """A place with what is inside of it."""

    name: str
    kind: int
    device: float
    host: float
    launches: float
    children: list[_Node] = field(default_factory=list["_Node"])

    @property
    def key(self) -> tuple[int, str]:
        return self.kind, self.name


@dataclass
class _Pair:
    status: ContextStatus
    a: _Node | None
    b: _Node | None
    children: list[_Pair] = field(default_factory=list["_Pair"])

    @property
    def size(self) -> float:
        """How much it differs, ns on either side."""
        device = (self.b.device if self.b else 0.0) - (self.a.device if self.a else 0.0)
        host = (self.b.host if self.b else 0.0) - (self.a.host if self.a else 0.0)
        return abs(device) + abs(host)


def compare_contexts(
    a: Tree, b: Tree, *, a_steps: int = 1, b_steps: int = 1, a_scale: float = 1.0, b_scale: float = 1.0
) -> list[ContextChange]:
    """The places that differ, outer ones before what is inside of them.

    Args:
        a, b: trees of the steps that count.
        a_steps, b_steps: how many these are: costs are per step.
        a_scale, b_scale: host time without the profiler over host time as recorded.
    """
    left, right = _nodes(a, a_steps, a_scale), _nodes(b, b_steps, b_scale)
    pairs = _match(left, right)
    cost = max(sum(node.device + node.host for node in roots) for roots in (left, right))
    return list(islice(_rows(pairs, _WORTH * cost), _MAX_ROWS))


def _nodes(tree: Tree, steps: int, host_scale: float) -> list[_Node]:
    """The places of a tree as nodes; the roots."""
    place = np.isin(tree.kind, _PLACES)
    sums = {name: tree.inclusive(name) / max(1, steps) for name in ("device", "host", "launches")}
    made: dict[int, _Node] = {}
    roots: list[_Node] = []
    parents = tree.parent.tolist()
    # Parents come before their children: one pass is enough. What is no place belongs to the place above.
    for row in range(len(tree)):
        if not place[row]:
            continue
        above = parents[row]
        while above >= 0 and above not in made:
            above = parents[above]
        device, host, launches = (float(sums[name][row]) for name in ("device", "host", "launches"))
        node = _Node(stable_name(tree.label(row)), int(tree.kind[row]), device, host * host_scale, launches)
        made[row] = node
        (made[above].children if above >= 0 else roots).append(node)
    return roots


def _content(node: _Node) -> dict[str, float]:
    """What is inside of a node: names with what they cost; an explicit stack, because frames nest deeply."""
    found: dict[str, float] = {}
    stack = list(node.children)
    while stack:
        here = stack.pop()
        found[here.name] = found.get(here.name, 0.0) + here.device + here.host + 1.0
        stack += here.children
    return found


def _match(a: list[_Node], b: list[_Node]) -> list[_Pair]:
    """Match siblings, and what is below them."""
    done: list[_Pair] = []
    work: list[tuple[list[_Node], list[_Node], list[_Pair]]] = [(a, b, done)]
    while work:
        left, right, into = work.pop()
        for pair in _siblings(left, right):
            into.append(pair)
            work.append((_below(pair.a, pair), _below(pair.b, pair), pair.children))
    return done


def _below(node: _Node | None, pair: _Pair) -> list[_Node]:
    # A context that only one side has needs no rows for what is inside of it.
    return node.children if node is not None and pair.a is not None and pair.b is not None else []


def _siblings(a: list[_Node], b: list[_Node]) -> Iterator[_Pair]:
    waiting: dict[tuple[int, str], list[_Node]] = {}
    for node in b:
        waiting.setdefault(node.key, []).append(node)
    left: list[_Node] = []
    for node in a:
        same = waiting.get(node.key)
        if same:
            yield _Pair("same", node, same.pop(0))
        else:
            left.append(node)
    right = [node for nodes in waiting.values() for node in nodes]
    yield from _renamed(left, right)
    yield from _wrapped(left, right)
    yield from (_Pair("gone", node, None) for node in left)
    yield from (_Pair("new", None, node) for node in right)


def _renamed(left: list[_Node], right: list[_Node]) -> Iterator[_Pair]:
    """Left-over nodes of one kind whose content is alike, the most alike first; they are taken out of both lists."""
    inside_left = [_content(node) for node in left] if right else []
    inside_right = [_content(node) for node in right] if left else []
    scored = [
        (score, i, j)
        for i, x in enumerate(left)
        for j, y in enumerate(right)
        if x.kind == y.kind and (score := _likeness(inside_left[i], inside_right[j])) >= _ALIKE
    ]
    used_left: set[int] = set()
    used_right: set[int] = set()
    for _, i, j in sorted(scored, key=lambda s: -s[0]):
        if i not in used_left and j not in used_right:
            used_left.add(i)
            used_right.add(j)
            yield _Pair("renamed", left[i], right[j])
    left[:] = [node for i, node in enumerate(left) if i not in used_left]
    right[:] = [node for j, node in enumerate(right) if j not in used_right]


def _wrapped(left: list[_Node], right: list[_Node]) -> Iterator[_Pair]:
    """A node of one side put around what stands free on the other: its children are matched with that."""
    for outer, inner in ((right, left), (left, right)):
        for node in list(outer):
            names = {child.key for child in node.children}
            taken = [other for other in inner if other.key in names]
            if not taken:
                continue
            outer.remove(node)
            for other in taken:
                inner.remove(other)
            # The other side as if the wrapper were there: what it would hold, and what that costs.
            device, host, launches = _sums(taken)
            stand_in = _Node(node.name, node.kind, device, host, launches, children=taken)
            yield _Pair("wrapped", stand_in, node) if outer is right else _Pair("unwrapped", node, stand_in)


def _sums(nodes: list[_Node]) -> tuple[float, float, float]:
    return sum(n.device for n in nodes), sum(n.host for n in nodes), sum(n.launches for n in nodes)


def _likeness(a: dict[str, float], b: dict[str, float]) -> float:
    """Shared content over all content; 0 where one side is empty."""
    total_a, total_b = sum(a.values()), sum(b.values())
    if not total_a or not total_b:
        return 0.0
    return sum(min(a[name] / total_a, b[name] / total_b) for name in a.keys() & b.keys())


def _rows(pairs: list[_Pair], worth: float) -> Iterator[ContextChange]:
    """Rows worth showing, the largest difference first at every level.

    A place inside of which one place makes up for all of the difference is passed over.
    """
    stack: list[tuple[_Pair, tuple[str, ...]]] = [(pair, ()) for pair in _largest_last(pairs)]
    while stack:
        pair, path = stack.pop()
        node = pair.b or pair.a
        assert node is not None
        said = any(abs(child.size - pair.size) <= _SAID * pair.size for child in pair.children)
        if pair.status in _SHAPES or (pair.size > worth and not said):
            yield _change(pair, path, node)
        stack += [(child, (*path, node.name)) for child in _largest_last(pair.children)]


def _largest_last(pairs: list[_Pair]) -> list[_Pair]:
    return sorted(pairs, key=lambda pair: pair.size)


def _change(pair: _Pair, path: tuple[str, ...], node: _Node) -> ContextChange:
    a, b = pair.a, pair.b
    return ContextChange(
        status=pair.status,
        kind=KIND_NAMES[node.kind],
        name=b.name if b else node.name,
        was=a.name if a is not None and pair.status == "renamed" else "",
        path=list(path[-6:]),
        depth=len(path),
        a_device_ns=a.device if a else 0.0,
        b_device_ns=b.device if b else 0.0,
        a_host_ns=a.host if a else 0.0,
        b_host_ns=b.host if b else 0.0,
        a_launches=a.launches if a else 0.0,
        b_launches=b.launches if b else 0.0,
    )
