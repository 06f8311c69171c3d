"""Forests as arrays against the obvious algorithms on dictionaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.tree.forest import climb, levels, nearest_marked, preorder, subtree_sums, unify


@st.composite
def forests(draw: st.DrawFn, most: int = 30) -> np.ndarray:
    """A random forest whose rows are in a random order: parents may come after their children."""
    n = draw(st.integers(0, most))
    parent = [draw(st.integers(-1, row - 1)) for row in range(n)]
    place = draw(st.permutations(range(n)))
    shuffled = np.full(n, -1, dtype=np.int64)
    for row, above in enumerate(parent):
        shuffled[place[row]] = place[above] if above >= 0 else -1
    return shuffled


def path(parent: np.ndarray, row: int) -> list[int]:
    """The row and all above it."""
    found = []
    while row >= 0:
        found.append(row)
        row = int(parent[row])
    return found


@settings(deadline=None)
@given(forests())
def test_depth_root_and_levels(parent: np.ndarray) -> None:
    depth, root = climb(parent)
    assert depth.tolist() == [len(path(parent, row)) - 1 for row in range(len(parent))]
    assert root.tolist() == [path(parent, row)[-1] for row in range(len(parent))]
    seen = [rows.tolist() for rows in levels(depth)]
    assert sorted(row for rows in seen for row in rows) == list(range(len(parent)))
    assert all(depth[row] == level for level, rows in enumerate(seen) for row in rows)


@settings(deadline=None)
@given(forests(), st.data())
def test_sums_and_nearest(parent: np.ndarray, data: st.DataObject) -> None:
    n = len(parent)
    values = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)), dtype=np.int64)
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    sums = subtree_sums(parent, values)
    near = nearest_marked(parent, marked)
    for row in range(n):
        assert sums[row] == sum(int(values[other]) for other in range(n) if row in path(parent, other))
        assert near[row] == next((other for other in path(parent, row) if marked[other]), -1)


@settings(deadline=None)
@given(forests(), st.data())
def test_preorder_keeps_families_together(parent: np.ndarray, data: st.DataObject) -> None:
    n = len(parent)
    key = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), dtype=np.int64)

    def walk(above: int) -> list[int]:
        children = sorted((row for row in range(n) if parent[row] == above), key=lambda row: (-key[row], row))
        return [found for child in children for found in [child, *walk(child)]]

    assert preorder(parent, key).tolist() == walk(-1)


@settings(deadline=None, max_examples=200)
@given(forests(), st.data())
def test_unify_merges_equal_paths_and_nothing_else(parent: np.ndarray, data: st.DataObject) -> None:
    n = len(parent)
    identity = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), dtype=np.int64)
    order = sorted(range(n), key=lambda row: len(path(parent, row)))
    place = {row: index for index, row in enumerate(order)}
    # A forward row of lesser place than the row and than all above it: no cycle is possible.
    forward = np.full(n, -1, dtype=np.int64)
    for row in range(n):
        earlier = [other for other in range(n) if all(place[other] < place[at] for at in path(parent, row))]
        forward[row] = data.draw(st.sampled_from([-1, *earlier]))
    groups = unify(parent, identity, forward)
    keys: dict[int, object] = {}

    def key(row: int) -> object:
        if row < 0:
            return None
        if row not in keys:
            keys[row] = (key(int(parent[row])), int(identity[row]), key(int(forward[row])))
        return keys[row]

    for a in range(n):
        for b in range(n):
            assert (groups.of[a] == groups.of[b]) == (key(a) == key(b))
    for row in range(n):
        group = groups.of[row]
        assert groups.identity[group] == identity[row]
        assert groups.parent[group] == (groups.of[parent[row]] if parent[row] >= 0 else -1) < group
        assert groups.forward[group] == (groups.of[forward[row]] if forward[row] >= 0 else -1) < group
