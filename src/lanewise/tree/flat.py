"""Flat views: one row per kernel, operator, module, source line, file or phase.

Each row has what it cost *itself* (no inner row of the same table has it) and in *total* (everything below, counted
once even where it calls itself). The column `device` adds up to the tree's device total.
"""

from __future__ import annotations

import numpy as np

from lanewise.errors import UsageError
from lanewise.measure.columns import Columns
from lanewise.trace.frames import frame_at, parse_frame
from lanewise.trace.schema import ENGINE_PREFIX
from lanewise.tree.forest import nearest_marked, subtree_sums
from lanewise.tree.model import PHASES, NodeKind, Tree
from lanewise.tree.rebuild import combine
from lanewise.tree.views import user_frames

__all__ = ["BY", "flat"]

BY: tuple[str, ...] = ("kernel", "operator", "module", "class", "line", "file", "function", "phase")

_NONE = {
    "kernel": "(host only)",
    "operator": "(no operator)",
    "module": "(no module)",
    "class": "(no module)",
    "line": "(no line of your own)",
    "file": "(no file of your own)",
    "function": "(no Python frame)",
}


def flat(tree: Tree, by: str, *, metric: str = "device", sort: str = "") -> Columns:
    """One row per distinct thing, the costliest first.

    Args:
        tree: a tree; put it under the forward lines first to charge backward work to lines and modules.
        by: `kernel` (kernels, copies, sets), `operator` (innermost), `module` (path), `class` (of modules), `line`,
            `file` (innermost frame of the user's own files), `function` (innermost frame of any file), `phase`.
        metric: what the table is about, as in `Tree.value`: it gets a column of its own and one `total_<metric>`.
        sort: column to sort by, largest first; that total by default.

    Returns:
        Columns `name` and `detail` (text; the class of a module, the file of a line), the stored metrics (exclusive),
        `total_device`, `total_host`, `total_launches`, that of `metric`, `mean` and `stddev` of the work (ns), and for
        each phase that occurs its part of `total_device` as `phase_<name>`.

    Raises:
        UsageError: unknown `by` or `sort`.
    """
    if by not in BY:
        raise UsageError(f"cannot list by {by!r}; choose from {', '.join(BY)}")
    marked, key, labels, details = _owners(tree, by)
    at = nearest_marked(tree.parent, marked)
    owner = np.where(at >= 0, key[np.maximum(at, 0)], len(labels))
    size = len(labels) + 1
    columns: dict[str, np.ndarray] = {
        "name": np.array([*labels, _NONE.get(by, "(none)")], dtype=object),
        "detail": np.array([*details, ""], dtype=object),
    }
    metrics = combine(tree.metrics, owner, size)
    # Entering an inner context is not entering the thing again: only the rows that are the thing count.
    metrics["calls"] = np.bincount(key[marked], weights=tree.metrics["calls"][marked], minlength=size).astype(np.int64)
    columns |= metrics
    outermost = marked & ~_inside_same(tree.parent, marked, key)
    loose = owner == len(labels)
    if metric not in columns:
        columns[metric] = np.bincount(owner, weights=tree.value(metric), minlength=size).astype(np.int64)
    for name in dict.fromkeys((metric, "device", "host", "launches")):
        # A phase is a part of the whole, not a place in it: what stands inside one may be of another.
        # Calls of what stands inside are no calls of the thing.
        whole = (
            columns[name]
            if by == "phase" or name == "calls"
            else _totals(tree, tree.value(name), outermost, key, loose, size)
        )
        columns[f"total_{name}"] = whole
    for phase in sorted(set(tree.phase[tree.metrics["device"] != 0].tolist())) if by != "phase" else ():
        part = np.where(tree.phase == phase, tree.metrics["device"], 0)
        columns[f"phase_{PHASES[phase]}"] = _totals(tree, part, outermost, key, loose, size)
    count = np.maximum(columns["count"], 1)
    columns["mean"] = columns["device"] / count
    columns["stddev"] = np.sqrt(np.maximum(columns["squares"] / count - columns["mean"] ** 2, 0))
    sort = sort or f"total_{metric}"
    if sort not in columns:
        raise UsageError(f"cannot sort by {sort!r}; choose from {', '.join(columns)}")
    table = Columns(columns)
    seen = ("total_device", "total_host", "calls", "total_launches", f"total_{metric}")
    used = sum(np.abs(columns[name]) for name in seen) != 0
    table = table.take(np.asarray(used))
    return table.sorted_by(sort) if table[sort].dtype != object else table.sorted_by("total_device")


def _owners(tree: Tree, by: str) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Nodes that make rows, the row of each (-1 elsewhere), and the names and details of the rows."""
    if by == "phase":
        return np.ones(len(tree), dtype=bool), tree.phase.astype(np.int64), list(PHASES), [""] * len(PHASES)
    if by == "kernel":
        marked = tree.leaf
    elif by == "operator":
        marked = tree.kind == NodeKind.OPERATOR
    elif by in {"module", "class"}:
        marked = tree.kind == NodeKind.MODULE
    elif by == "function":
        marked = tree.kind == NodeKind.FRAME
    else:
        marked = user_frames(tree)
    pairs: dict[tuple[str, str], int] = {}
    row_of_node = np.full(len(tree), -1, dtype=np.int64)
    rows = np.flatnonzero(marked)
    texts = np.stack((tree.name[rows], tree.detail[rows]), axis=1) if len(rows) else np.empty((0, 2), np.int64)
    distinct, inverse = np.unique(texts, axis=0, return_inverse=True)
    row_of_text = np.empty(len(distinct), dtype=np.int64)
    for index, (name, detail) in enumerate(distinct.tolist()):
        label = _label(tree.strings[int(name)], tree.strings[int(detail)], by)
        row_of_text[index] = pairs.setdefault(label, len(pairs))
    row_of_node[rows] = row_of_text[inverse.reshape(-1)]
    return marked, row_of_node, [name for name, _ in pairs], [detail for _, detail in pairs]


def _label(name: str, detail: str, by: str) -> tuple[str, str]:
    if by == "operator":
        return name.removeprefix(ENGINE_PREFIX), ""
    if by == "class":
        return detail, ""
    if by == "line":
        frame = frame_at(name, detail)
        return f"{frame.file}:{frame.line}", frame.function
    if by == "file":
        return parse_frame(name).file, ""
    if by == "function":
        return name, ""
    return name, detail


def _inside_same(parent: np.ndarray, marked: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Marked nodes that have a node of the same row somewhere above them."""
    nearest = nearest_marked(parent, marked)
    above = np.where(parent >= 0, nearest[np.maximum(parent, 0)], -1)
    result = np.zeros(len(parent), dtype=bool)
    rows = np.flatnonzero(marked)
    at = above[rows]
    while len(rows):
        live = at >= 0
        rows, at = rows[live], at[live]
        same = key[at] == key[rows]
        result[rows[same]] = True
        rows, at = rows[~same], above[at[~same]]
    return result


def _totals(
    tree: Tree, values: np.ndarray, outermost: np.ndarray, key: np.ndarray, loose: np.ndarray, size: int
) -> np.ndarray:
    """Inclusive sum per row; the last row takes what belongs to none."""
    inclusive = subtree_sums(tree.parent, values)
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, key[outermost], inclusive[outermost])
    total[-1] += int(values[loose].sum())
    return total
