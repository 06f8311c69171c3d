"""What a collector has aggregated inside a program -> its calling-context tree.

The collector's own nodes are already contexts, one set per thread. Here they get the names, phases and links that a
tree built from a trace has, so that both can be compared: threads with one role become one, counters go, and what the
position in time tells from a trace is told by the order in which contexts were first seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise._version import __version__
from lanewise.tree.forest import nearest_marked, subtree_sums, unify
from lanewise.tree.from_trace.contexts import LOST_MARK
from lanewise.tree.model import METRICS, NodeKind, Phase, Tree, TreeInfo, identity_keys, identity_parts
from lanewise.tree.names import normalise
from lanewise.tree.phases_by_name import STEP_NAME, communicates
from lanewise.tree.phases_of_contexts import phases_of_contexts
from lanewise.tree.rebuild import combine, drop_empty
from lanewise.tree.watching.start_up import START_UP_MARK
from lanewise.tree.watching.watched import Watched

__all__ = [
    "MODULE_SEPARATOR",
    "Collected",
    "CollectedKind",
    "CollectedLeaf",
    "CollectedThread",
    "module_names",
    "tree_of",
]

MODULE_SEPARATOR = "\x1f"
"""Between network, path and class in the name of a module's context."""

NUMBERED = 1
"""Flag of an operator that autograd gave a sequence number."""


class CollectedKind:
    """Kinds of collected contexts, as the native collector numbers them."""

    ROOT = 0
    FRAME = 1
    MODULE = 2
    SCOPE = 3
    OPERATOR = 4
    BACKWARD = 5
    MARK = 6
    KERNEL = 7
    COPY = 8
    SET = 9


_KINDS = np.array(
    [
        NodeKind.THREAD, NodeKind.FRAME, NodeKind.MODULE, NodeKind.ANNOTATION, NodeKind.OPERATOR, NodeKind.OPERATOR,
        NodeKind.MARK, NodeKind.KERNEL, NodeKind.COPY, NodeKind.SET,
    ],
    dtype=np.int64,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CollectedThread:
    """Contexts of one thread, parents before children; row 0 is the thread itself.

    Attributes:
        index: what `forward` of other threads calls it.
        parent: row of each context's parent; the root's is itself.
        kind: one of `CollectedKind`. flags: bits.
        name: row of `Collected.names`, or of `Collected.sites` for frames.
        forward: 0, or (index + 1) << 32 | row of the forward operator.
        calls: how often it was entered. host: time of its own, ns.
        early: how much of calls and of host came before the first step had ended; None if nothing is known of steps.
    """

    index: int
    parent: np.ndarray
    kind: np.ndarray
    flags: np.ndarray
    name: np.ndarray
    forward: np.ndarray
    calls: np.ndarray
    host: np.ndarray
    early: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, slots=True)
class CollectedLeaf:
    """Device work of one kind and name in one context; times in ns.

    `context` is a reference as in `CollectedThread.forward`, 0 where the launch is unknown. `name` and `detail` are rows
    of `Collected.names`. `launches` of the `works` were launched one by one, not as a part of a graph. `early` work came
    before the first step had ended.
    """

    context: int
    kind: int
    name: int
    detail: int
    works: int
    launches: int
    device: int
    shortest: int
    longest: int
    squares: float
    bytes: int
    gap: int
    idle: int
    early: bool = False


@dataclass(frozen=True, eq=False)
class Collected:
    """All threads of a collection.

    Attributes:
        threads: their contexts.
        names: texts. sites: frames as text; several may be equal. lines: current line of each site.
        backward, linked, accumulated: as in `TreeInfo`.
        leaves: device work. devices: names of the devices.
    """

    threads: Sequence[CollectedThread]
    names: Sequence[str]
    sites: Sequence[str]
    lines: Sequence[int]
    backward: int = 0
    linked: int = 0
    accumulated: int = 0
    leaves: Sequence[CollectedLeaf] = ()
    devices: Sequence[str] = ()


def tree_of(collected: Collected, watched: Watched, *, source: str = "", lines: bool = False) -> Tree:
    """The tree of a collection.

    Args:
        collected: what the collector has.
        watched: how it was collected.
        source: name of the program.
        lines: tell the lines of a function apart from which it calls; they become the detail of its frames.
    """
    offsets = np.cumsum([0, *(len(thread.parent) for thread in collected.threads)])
    size = int(offsets[-1])
    kind = _joined([thread.kind for thread in collected.threads])
    flags = _joined([thread.flags for thread in collected.threads])
    name = _joined([thread.name for thread in collected.threads])
    parent = np.full(size, -1, dtype=np.int64)
    thread_of = np.zeros(size, dtype=np.int64)
    for row, thread in enumerate(collected.threads):
        begin, end = int(offsets[row]), int(offsets[row + 1])
        parent[begin:end] = thread.parent.astype(np.int64) + begin
        parent[begin] = -1
        thread_of[begin:end] = row
    forward = _rows_of(collected, offsets, _joined([thread.forward for thread in collected.threads]))
    parent, kind, flags, name, thread_of, forward = _with_leaves(
        collected, offsets, parent, kind, flags, name, thread_of, forward
    )
    size = len(parent)

    texts, text_of, detail_of = _texts(collected, kind, name, lines)
    comm = communicates([texts[row] for row in text_of]) & (kind != CollectedKind.FRAME)
    forward = _without_communication(parent, kind, forward, comm)
    phase = phases_of_contexts(
        parent=parent, kind=_KINDS[kind], name=text_of, strings=texts, thread=thread_of,
        numbered=(flags & NUMBERED) > 0, backward=kind == CollectedKind.BACKWARD, forward=forward, communication=comm,
    )  # fmt: skip

    hidden = _hidden(kind, text_of, texts)
    metrics = _metrics(collected, parent, hidden, early=False)
    if _has_early(collected):
        # The same contexts once more, below a root of their own.
        texts.append(START_UP_MARK)
        early = _metrics(collected, parent, hidden, early=True)
        metrics = {name: np.concatenate((values, values[:1] * 0, early[name])) for name, values in metrics.items()}
        parent = np.concatenate((parent, [-1], np.where(parent >= 0, parent + size + 1, size)))
        forward = np.concatenate((forward, [-1], np.where(forward >= 0, forward + size + 1, -1)))
        kind = np.concatenate((kind, [CollectedKind.MARK], kind))
        phase = np.concatenate((phase, [Phase.OTHER], phase))
        text_of = np.concatenate((text_of, [len(texts) - 1], text_of))
        detail_of = np.concatenate((detail_of, [0], detail_of))
        hidden = np.concatenate((hidden, [False], hidden))
        size = len(parent)
    stands = nearest_marked(parent, ~hidden)
    rows = np.flatnonzero(~hidden)
    place = np.full(size, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    above = parent[rows]
    above = np.where(above >= 0, place[stands[above]], -1)
    beside = np.where(forward[rows] >= 0, place[stands[forward[rows]]], -1)
    strings, rank = _sorted(texts)
    key = identity_keys(_KINDS[kind[rows]], phase[rows], rank[text_of[rows]], rank[detail_of[rows]])
    distinct, identity = np.unique(key, return_inverse=True)
    groups = unify(above, identity, beside)
    group = groups.of[place[stands]] if size else place
    result_kind, result_phase, result_name, result_detail = identity_parts(distinct[groups.identity])
    tree = Tree(
        parent=groups.parent, kind=result_kind, phase=result_phase, name=result_name, detail=result_detail,
        forward=groups.forward, strings=strings, metrics=combine(metrics, group, len(groups.parent)),
        info=TreeInfo(
            source=source,
            device_total=sum(leaf.device for leaf in collected.leaves),
            unlinked=sum(leaf.works for leaf in collected.leaves if not leaf.context),
            producer=f"lanewise {__version__}",
            backward=collected.backward,
            linked=collected.linked,
            accumulated=collected.accumulated,
            modules="recorded" if (kind == CollectedKind.MODULE).any() else "none",
            frames=bool((kind == CollectedKind.FRAME).any()),
            devices=tuple(dict.fromkeys(collected.devices)),
            truncated=watched.losses.get("truncated", 0),
            watched=watched,
        ),
    )  # fmt: skip
    return _only_used_texts(drop_empty(tree))


def _has_early(collected: Collected) -> bool:
    return any(thread.early is not None and thread.early[0].any() for thread in collected.threads)


def _metrics(collected: Collected, parent: np.ndarray, hidden: np.ndarray, *, early: bool) -> dict[str, np.ndarray]:
    """What contexts cost before the first step had ended, or from then on."""
    metrics = {name: np.zeros(len(parent), dtype=np.float64 if name == "squares" else np.int64) for name in METRICS}
    nothing = [
        (np.zeros(len(one.calls), np.int64),) * 2 if one.early is None else one.early for one in collected.threads
    ]
    calls, host = _joined([calls for calls, _ in nothing]), _joined([host for _, host in nothing])
    if not early:
        calls = _joined([thread.calls for thread in collected.threads]) - calls
        host = _joined([thread.host for thread in collected.threads]) - host
    size = len(calls)
    metrics["calls"][:size] = np.where(hidden[:size], 0, calls)
    metrics["host"][:size] = host
    if collected.leaves:
        counts = np.array([leaf.early == early for leaf in collected.leaves], dtype=bool)
        for metric, field in _LEAF_METRICS.items():
            values = np.array([getattr(leaf, field) for leaf in collected.leaves])
            metrics[metric][size + 1 :] = np.where(counts, values, 0)
        launches = np.array([leaf.launches for leaf in collected.leaves], dtype=np.int64)
        np.add.at(metrics["launches"], parent[size + 1 :], np.where(counts, launches, 0))
    return metrics


def _only_used_texts(tree: Tree) -> Tree:
    """Without the texts that no context has, as those of our own frames."""
    used = np.unique(np.concatenate(([0], tree.name, tree.detail)))
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=np.searchsorted(used, tree.name),
        detail=np.searchsorted(used, tree.detail), forward=tree.forward,
        strings=[tree.strings[int(row)] for row in used], metrics=tree.metrics, info=tree.info,
    )  # fmt: skip


def _hidden(kind: np.ndarray, text_of: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Step marks, and frames of ours around the program's (functions that call what `--step-on` names)."""
    step = np.array([bool(STEP_NAME.match(text)) for text in texts], dtype=bool)[text_of] & (
        kind == CollectedKind.SCOPE
    )
    ours = np.array([bool(_OURS.match(text)) for text in texts], dtype=bool)[text_of]
    return step | (ours & (kind == CollectedKind.FRAME))


_OURS = re.compile(r"^(?:.*/)?lanewise/capture/(?:\w+/)*\w+\.py\(\d+\): ")


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)


_LEAF_METRICS = {"count": "works"} | {
    name: name for name in ("device", "shortest", "longest", "squares", "bytes", "gap", "idle")
}


def _rows_of(collected: Collected, offsets: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Row of each referenced context, or -1."""
    offset_of = np.full(max((thread.index for thread in collected.threads), default=-1) + 2, -1, dtype=np.int64)
    size_of = np.zeros(len(offset_of), dtype=np.int64)
    for row, thread in enumerate(collected.threads):
        offset_of[thread.index + 1] = offsets[row]
        size_of[thread.index + 1] = len(thread.parent)
    tree = np.minimum(reference >> 32, len(offset_of) - 1)
    row = reference & 0xFFFFFFFF
    # A thread may have gone on, or begun, between the two moments at which their contexts were read.
    known = (reference > 0) & (reference >> 32 < len(offset_of)) & (offset_of[tree] >= 0) & (row < size_of[tree])
    return np.where(known, offset_of[tree] + row, -1)


def _with_leaves(
    collected: Collected,
    offsets: np.ndarray,
    parent: np.ndarray,
    kind: np.ndarray,
    flags: np.ndarray,
    name: np.ndarray,
    thread_of: np.ndarray,
    forward: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """The columns with a row for work without a known launch, and one for each leaf."""
    leaves = collected.leaves
    if not leaves:
        return parent, kind, flags, name, thread_of, forward
    lost, more = len(parent), len(leaves) + 1
    above = _rows_of(collected, offsets, np.array([leaf.context for leaf in leaves], dtype=np.int64))
    zeros = np.zeros(more, dtype=np.int64)
    return (
        np.concatenate((parent, [-1], np.where(above >= 0, above, lost))),
        np.concatenate((kind, [CollectedKind.MARK], [leaf.kind for leaf in leaves])),
        np.concatenate((flags, zeros)),
        np.concatenate((name, [_LOST], [leaf.name for leaf in leaves])),
        np.concatenate((thread_of, zeros + len(collected.threads))),
        np.concatenate((forward, zeros - 1)),
    )


_LOST = -1
"""Stands for the name of work without a known launch, which no collector names."""


def _texts(
    collected: Collected, kind: np.ndarray, name: np.ndarray, lines: bool
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, and which of them are the name and the detail of each context."""
    rows: dict[str, int] = {"": 0}

    def add(text: str) -> int:
        return rows.setdefault(text, len(rows))

    text_of = np.zeros(len(kind), dtype=np.int64)
    detail_of = np.zeros(len(kind), dtype=np.int64)
    frame, module = kind == CollectedKind.FRAME, kind == CollectedKind.MODULE
    sites = normalise(collected.sites)
    site_row = np.array([add(text) for text in sites] or [0], dtype=np.int64)
    text_of[frame] = site_row[name[frame]]
    if lines:
        line_row = np.array([add(f"line {line}") for line in collected.lines] or [0], dtype=np.int64)
        detail_of[frame] = line_row[name[frame]]
    used = np.unique(name[module])
    named = module_names([str(collected.names[int(row)]) for row in used.tolist()])
    path_row, class_row = np.zeros(len(collected.names), np.int64), np.zeros(len(collected.names), np.int64)
    for row, (path, cls) in zip(used.tolist(), named, strict=True):
        path_row[row], class_row[row] = add(path), add(cls)
    text_of[module], detail_of[module] = path_row[name[module]], class_row[name[module]]
    copy = kind == CollectedKind.COPY
    if copy.any():
        # Leaves are the last rows, in their order.
        details = [add(str(collected.names[leaf.detail])) for leaf in collected.leaves]
        detail_of[len(kind) - len(details) :] = details
    lost = name == _LOST
    text_of[lost] = add(LOST_MARK)
    other = ~frame & ~module & ~lost
    used = np.unique(name[other])
    other_row = np.zeros(len(collected.names), dtype=np.int64)
    for row, text in zip(
        used.tolist(), normalise([str(collected.names[int(row)]) for row in used.tolist()]), strict=True
    ):
        other_row[row] = add(text)
    text_of[other] = other_row[name[other]]
    return list(rows), text_of, detail_of


def module_names(described: Sequence[str]) -> list[tuple[str, str]]:
    """Path and class of modules. The network's name is part of the path only where there are several networks."""
    parts = [(*text.split(MODULE_SEPARATOR), "", "")[:3] for text in described]
    networks = sorted({network for network, _, _ in parts})
    of_class: dict[str, list[str]] = {}
    for network in networks:
        of_class.setdefault(network.rpartition("_")[0] or network, []).append(network)
    prefix = {
        network: cls if len(group) == 1 else network for cls, group in of_class.items() for network in group
    }  # fmt: skip
    result: list[tuple[str, str]] = []
    for network, path, cls in parts:
        if len(networks) == 1:
            result.append((path or cls or network, cls))
        else:
            result.append((f"{prefix[network]}.{path}" if path else prefix[network], cls))
    return result


def _sorted(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The texts in order, "" first, and the place of each there, so that equal programs give equal files."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[order] = np.arange(len(texts))
    return [texts[row] for row in order], rank


def _without_communication(
    parent: np.ndarray, kind: np.ndarray, forward: np.ndarray, communication: np.ndarray
) -> np.ndarray:
    """Accumulations of gradients stay where they ran if they communicate: they move a bucket, not one layer's."""
    placed = (forward >= 0) & (kind == CollectedKind.OPERATOR)
    if not (placed.any() and communication.any()):
        return forward
    holds = subtree_sums(parent, communication.astype(np.int64)) > 0
    return np.where(placed & holds, -1, forward)
