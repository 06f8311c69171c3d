"""A tree in a terminal: costs on the left, the contexts on the right, the costliest first.

A row shows everything below it. Contexts that cost the same as the one around them share its row, and what is not shown
is summed up in a row of its own, so that the rows below a context add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.text import Text

from lanewise.measure.columns import Columns
from lanewise.measure.kernel_names import short_name
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import QuantityType, format_quantity
from lanewise.show.safe_text import clean, shorten
from lanewise.show.tree.context_label import context_label
from lanewise.tree.forest import preorder, subtree_sums
from lanewise.tree.model import INSIDE, PHASES, NodeKind, Phase, Tree
from lanewise.tree.source_excerpt import find_source
from lanewise.tree.watching.watched_text import watched_lines

__all__ = ["Row", "flat_block", "header", "tree_rows", "tree_text"]

_STYLE = {
    NodeKind.THREAD: "bold",
    NodeKind.MODULE: "cyan",
    NodeKind.ANNOTATION: "magenta",
    NodeKind.OPERATOR: "green",
    NodeKind.WAIT: "red",
    NodeKind.KERNEL: "yellow",
    NodeKind.COPY: "yellow",
    NodeKind.SET: "yellow",
    NodeKind.MARK: "red",
}
_PHASE_STYLE = {Phase.BACKWARD: "blue", Phase.RECOMPUTE: "blue", Phase.OPTIMIZER: "magenta"}
_UNITS: dict[str, QuantityType] = {
    "count": "count", "calls": "count", "launches": "count", "allocations": "count", "bytes": "bytes",
    "allocated": "bytes",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One printed row.

    Attributes:
        nodes: the contexts that share it, outermost first; empty for a row that sums up what is not shown.
        depth: indentation.
        last: for each level from the first to its own, whether nothing more follows there.
        value: metric of the row, everything below included; share: of the total.
        count: kernels, copies and sets below; for host time, calls of the row's last context.
        hidden: contexts that the row sums up.
        phases: the phases that make up the value, the largest first, with their share of the total.
    """

    nodes: tuple[int, ...]
    depth: int
    last: tuple[bool, ...]
    value: int
    share: float
    count: int
    hidden: int
    phases: tuple[tuple[int, float], ...]


def tree_rows(
    tree: Tree,
    metric: str = "device",
    *,
    min_share: float = 0.01,
    limit: int = 60,
    depth: int | None = None,
    join: bool = True,
) -> list[Row]:
    """The rows to print.

    Args:
        tree: a view of a tree.
        metric: what to sort by and show; see `Tree.value`.
        min_share: contexts below this share of the total are summed up.
        limit: at most about this many contexts get a row; the costliest do.
        depth: contexts deeper than this are left to their parents' rows.
        join: put a context on the row of the one around it where both cost the same.
    """
    values = tree.value(metric)
    inclusive = subtree_sums(tree.parent, values)
    size = np.abs(inclusive)
    total = int(values.sum())
    scale = int(size[tree.parent < 0].sum())
    if scale == 0:
        return []
    shown = size >= min_share * scale
    if depth is not None:
        shown &= tree.depth <= depth
    shown &= size > 0
    if np.count_nonzero(shown) > limit:
        # Costs never grow downwards, so the costliest contexts have their parents among them.
        rows = np.flatnonzero(shown)
        shown[rows[np.lexsort((rows, -size[rows]))][limit:]] = False
    on_host = metric == "host"
    counts = tree.metrics["calls"] if on_host else subtree_sums(tree.parent, tree.metrics["count"])
    by_phase = _by_phase(tree, values)
    children = _children(tree, size)
    rows_out: list[Row] = []

    def make(nodes: tuple[int, ...], last: tuple[bool, ...], value: int, count: int, hidden: int) -> Row:
        parts: list[tuple[int, float]] = []
        if nodes and not tree.leaf[nodes[-1]]:
            row = by_phase[nodes[0]]
            parts = [(phase, float(row[phase]) / scale) for phase in np.argsort(-np.abs(row)).tolist() if row[phase]]
        return Row(nodes, len(last), last, value, value / (total or scale), count, hidden, tuple(parts))

    # Depth first without recursion: contexts nest as deeply as the program does.
    roots = [node for node in children[-1] if shown[node]]
    stack: list[tuple[int, tuple[bool, ...]]] = [(node, ()) for node in reversed(roots)]
    pending: dict[int, Row] = {}
    while stack:
        node, last = stack.pop()
        if node < 0:
            rows_out.append(pending.pop(node))
            continue
        chain = [node]
        below = [child for child in children[chain[-1]] if shown[child]]
        while (
            join
            and len(below) == 1
            and not tree.leaf[node]
            and inclusive[below[0]] == inclusive[node]
            and not values[chain[-1]]
            and tree.kind[below[0]] != NodeKind.MODULE
            and not tree.leaf[below[0]]
            and tree.phase[below[0]] == tree.phase[node]
        ):
            chain.append(below[0])
            below = [child for child in children[chain[-1]] if shown[child]]
        rows_out.append(make(tuple(chain), last, int(inclusive[node]), int(counts[chain[-1] if on_host else node]), 0))
        end = chain[-1]
        rest = [child for child in children[end] if not shown[child] and inclusive[child]]
        rest_value = int(sum(inclusive[child] for child in rest))
        show_rest = bool(below) and bool(rest) and abs(rest_value) >= min_share * scale
        if show_rest:
            mark = -len(pending) - len(rows_out) - 1
            rest_count = 0 if on_host else int(sum(counts[c] for c in rest))
            pending[mark] = make((), (*last, True), rest_value, rest_count, len(rest))
            stack.append((mark, ()))
        for index, child in enumerate(reversed(below)):
            stack.append((child, (*last, index == 0 and not show_rest)))
    return rows_out


def _children(tree: Tree, size: np.ndarray) -> dict[int, list[int]]:
    result: dict[int, list[int]] = {-1: []}
    for node in range(len(tree)):
        result[node] = []
    for node in preorder(tree.parent, size).tolist():
        result[int(tree.parent[node])].append(node)
    return result


def _by_phase(tree: Tree, values: np.ndarray) -> np.ndarray:
    split = np.zeros((len(tree), len(PHASES)), dtype=np.int64)
    split[np.arange(len(tree)), tree.phase] = values
    return subtree_sums(tree.parent, split)


def header(tree: Tree) -> Text:
    """What the tree is of: source, device time, steps, devices, phases."""
    info = tree.info
    device = tree.total("device")
    host = not device
    total = tree.total("host") if host else device
    chosen = dict(info.filters)
    base = chosen.pop("minus", "")
    sign = "-" if total < 0 else "+" if base else ""
    facts = [f"{sign}{format_quantity('time', abs(total))} of {'host' if host else 'device'} time"]
    if base:
        facts.append(f"the difference to {clean(base, 60)}{', per step' if info.step_count == 1 else ''}")
    elif steps := info.step_count:
        # Host time is that of all threads, and of what comes before and after the steps.
        each = "" if host else f", {format_quantity('time', total / steps)} each"
        facts.append(f"{steps:,} steps{each}" if steps > 1 else "one step")
    if not host and not base:
        facts.append(f"{tree.total('count'):,} kernels, copies and sets")
    device_name = f" · {clean(info.devices[0], 40)}" if info.devices else ""
    lines = Text.assemble((clean(info.source, 60), "bold"), (device_name, "dim"), "\n", (" · ".join(facts), "dim"))
    if chosen:
        only = " · ".join(f"only {clean(key, 20)} {clean(text, 60)}" for key, text in chosen.items())
        lines.append(f"\n{only}", style="dim")
    if info.watched is not None and not base:
        lines.append("".join(f"\n{clean(line, 200)}" for line in watched_lines(info.watched)), style="dim")
    phases = np.bincount(tree.phase, weights=tree.metrics["device"], minlength=len(PHASES))
    if device > 0 and np.count_nonzero(phases) > 1:
        order = [p for p in np.argsort(-phases).tolist() if phases[p]]
        split = " · ".join(f"{PHASES[p]} {_percent(float(phases[p]) / device)}" for p in order)
        lines.append(f"\n{split}", style="dim")
    return lines


def tree_text(
    tree: Tree, rows: list[Row], metric: str = "device", *, width: int = 100, roots: Sequence[Path] = ()
) -> Text:
    """The rows as text of at most `width` columns; with `roots`, source lines of the user's functions from below them."""
    unit = _UNITS.get(metric, "time")
    out = Text(f"{metric:>10} {'share':>7} {'calls' if metric == 'host' else 'count':>7}  context\n", style="dim")
    for row in rows:
        sign = "-" if row.value < 0 else ""
        line = Text(f"{sign + format_quantity(unit, abs(row.value)):>10}")
        # How often a function was entered is not known of a program that was watched.
        part = bool(row.nodes) and int(tree.kind[row.nodes[-1]]) in INSIDE
        count = f"{row.count:,}" if row.count or (metric != "host" and not part) else ""
        line.append(f" {_percent(row.share):>7} {count:>7}  ")
        guides = _guides(row.last)
        line.append(guides, style="dim")
        room = max(width - len(line), 16)
        if row.nodes:
            _append_labels(line, tree, row, room)
        else:
            line.append(shorten(f"… {row.hidden} more", room), style="dim")
        out.append(line)
        out.append("\n")
        if roots and row.nodes:
            _append_source(out, tree, row, " " * 28 + _guides((*row.last, True))[:-2], width, roots)
    out.right_crop(1)
    return out


def _append_source(out: Text, tree: Tree, row: Row, lead: str, width: int, roots: Sequence[Path]) -> None:
    """The first lines of the innermost function of a row that is found below the roots."""
    for node in reversed(row.nodes):
        frame = tree.python_frame(node) if tree.kind[node] == NodeKind.FRAME else None
        source = find_source(frame.file, frame.line, roots) if frame is not None and frame.file else None
        if source is not None:
            for number, text in enumerate(source.lines, source.first):
                code = shorten(clean(text.expandtabs(4), 400), max(width - len(lead) - 7, 16))
                out.append(f"{lead}{number:>5} {code}\n", style="dim italic")
            return


def _percent(share: float) -> str:
    """One decimal throughout: parts of a tree are compared with each other and added up by eye."""
    return f"{share * 100:.1f} %"


def _guides(last: tuple[bool, ...]) -> str:
    if not last:
        return ""
    # Deep trees would leave no room for names: the outer levels are drawn as one mark.
    shown = last[-_DEEPEST:]
    lead = "" if len(last) <= _DEEPEST else "⋯ "
    return lead + "".join("  " if end else "│ " for end in shown[:-1]) + ("└ " if shown[-1] else "├ ")


_DEEPEST = 18


def _append_labels(line: Text, tree: Tree, row: Row, room: int) -> None:
    suffix = _phase_suffix(tree, row)
    if len(suffix) > room * 2 // 3:
        suffix = ""
    room -= len(suffix)
    labels = [context_label(tree, node) for node in row.nodes]
    if tree.kind[row.nodes[0]] == NodeKind.THREAD and len(_ends(labels)) > room:
        labels = labels[1:] or labels  # of all names the thread's says least
    joined = _joined(labels, room)
    line.append(shorten(joined, room), style=_STYLE.get(int(tree.kind[row.nodes[-1]]), ""))
    if suffix:
        line.append(suffix, style=_PHASE_STYLE.get(int(tree.phase[row.nodes[-1]]), "dim"))


def _joined(labels: list[str], room: int) -> str:
    """A chain of contexts that fits: its two ends if not all, where it enters rather than where it ends if not both."""
    full = " › ".join(labels)
    if len(full) <= room or len(labels) == 1:
        return full
    ends = _ends(labels)
    if len(ends) <= room:
        return ends
    left = room - len(labels[0]) - 7
    return f"{labels[0]} › … › {shorten(labels[-1], left)}" if left >= 12 else labels[0]


def _ends(labels: list[str]) -> str:
    return f"{labels[0]} › … › {labels[-1]}" if len(labels) > 2 else " › ".join(labels)


def _phase_suffix(tree: Tree, row: Row) -> str:
    """The phase where it is news: what a row consists of, or where backward work hangs under a forward line."""
    node = row.nodes[0]
    if tree.kind[row.nodes[-1]] in (NodeKind.MODULE, NodeKind.FRAME, NodeKind.OPERATOR) and len(row.phases) > 1:
        parts = [f"{PHASES[phase]} {_percent(share)}" for phase, share in row.phases[:2]]
        return f"  [{', '.join(parts)}]"
    parent = int(tree.parent[node])
    if parent >= 0 and tree.phase[node] != tree.phase[parent] and tree.phase[node] != Phase.OTHER:
        return f"  [{PHASES[int(tree.phase[node])]}]"
    return ""


_FLAT_TITLES = {
    "kernel": "Kernels, copies and sets", "operator": "Operators", "module": "Modules", "class": "Module classes",
    "line": "Source lines", "file": "Files", "function": "Functions", "phase": "Phases",
}  # fmt: skip


def flat_block(tree: Tree, table: Columns, by: str, metric: str = "device", *, limit: int | None = None) -> TableBlock:
    """A flat view as a table of the report: shares are of the tree's total of the metric, those of phases of its device
    time. What the tree has nothing of gets no column."""
    unit: QuantityType = _UNITS.get(metric, "time")
    main = [TableColumn(f"total_{metric}", unit, metric), TableColumn("share", "share", "share")]
    if by != "kernel" or metric != "device":
        main.append(TableColumn(metric, unit, "itself"))
    whole = max(abs(int(tree.value(metric).sum())), 1)
    total = max(abs(tree.total("device")), 1)
    phases = [name for name in table if name.startswith("phase_")] if by not in {"phase", "kernel"} else []
    phases.sort(key=lambda name: -int(np.abs(table[name]).max(initial=0)))
    columns = [TableColumn("total_device", "time", "device")]
    if by == "kernel":
        columns += [
            TableColumn("count", "count", "count"),
            TableColumn("mean", "time", "mean"),
            TableColumn("shortest", "time", "min"),
            TableColumn("longest", "time", "max"),
            TableColumn("stddev", "time", "stddev"),
        ]
    else:
        columns += [
            TableColumn("count", "count", "kernels"),
            TableColumn("total_host", "time", "host"),
            TableColumn("calls", "count", "calls"),
        ]
    if not tree.value("device").any():
        columns = [column for column in columns if column.key in {"total_host", "calls"}]
    shown_already = {column.key for column in main}
    columns = [*main, *(column for column in columns if column.key not in shown_already)]
    if len(phases) > 1:
        columns += [TableColumn(name, "share", name.removeprefix("phase_")) for name in phases]
    rows: list[dict[str, object]] = []
    for row in table.rows(limit):
        shown = {column.key: row[column.key] for column in columns if column.key in row}
        shown["share"] = row[f"total_{metric}"] / whole
        for name in phases:
            shown[name] = row[name] / total
        label = short_name(row["name"], 200) if by == "kernel" else row["name"]
        detail = row["detail"] if by in {"module", "line"} and row["detail"] != row["name"] else ""
        shown["name"] = f"{label} ({detail})" if detail else label
        rows.append(shown)
    title = f"{_FLAT_TITLES[by]} ({table.height:,})"
    return TableBlock(title, [TableColumn("name", "text", by), *columns], rows, table.height - len(rows))
