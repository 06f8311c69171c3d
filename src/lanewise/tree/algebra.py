"""Trees of several steps, ranks or runs: added up, or one taken from another.

Nodes are matched by their whole path, so both work across runs of one program: names hold no addresses and no counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lanewise.errors import UsageError
from lanewise.tree.forest import unify
from lanewise.tree.model import COMBINE, METRICS, Tree, TreeInfo, identity_keys
from lanewise.tree.rebuild import combine, drop_empty
from lanewise.tree.watching.watched import joined, one_step

__all__ = ["Aligned", "align", "merge", "per_step", "subtract"]


class Aligned(NamedTuple):
    """Several trees on one set of nodes.

    Attributes:
        tree: all nodes, with the sums of all trees as metrics.
        metrics: metrics of each tree on these nodes, in the order given.
    """

    tree: Tree
    metrics: tuple[dict[str, np.ndarray], ...]


def align(trees: Sequence[Tree]) -> Aligned:
    """Several trees on one set of nodes. UsageError without trees, or if they place backward work differently."""
    if not trees:
        raise UsageError("nothing to merge")
    if len({tree.info.placement for tree in trees}) > 1:
        raise UsageError("these trees place backward work differently; merge them before choosing a placement")
    strings = sorted({text for tree in trees for text in tree.strings} | {""})
    row_of = {text: row for row, text in enumerate(strings)}
    columns: dict[str, list[np.ndarray]] = {key: [] for key in ("parent", "kind", "phase", "name", "detail", "forward")}
    offset = 0
    for tree in trees:
        row = np.array([row_of[text] for text in tree.strings], dtype=np.int64)
        columns["parent"].append(np.where(tree.parent >= 0, tree.parent + offset, -1))
        columns["forward"].append(np.where(tree.forward >= 0, tree.forward + offset, -1))
        columns["kind"].append(tree.kind.astype(np.int64))
        columns["phase"].append(tree.phase.astype(np.int64))
        columns["name"].append(row[tree.name])
        columns["detail"].append(row[tree.detail])
        offset += len(tree)
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    keys = identity_keys(joined["kind"], joined["phase"], joined["name"], joined["detail"])
    identity = np.unique(keys, return_inverse=True)[1]
    groups = unify(joined["parent"], identity, joined["forward"])
    size = len(groups.parent)
    example = np.empty(size, dtype=np.int64)
    example[groups.of] = np.arange(offset)
    bounds = np.cumsum([0, *(len(tree) for tree in trees)]).tolist()
    parts = tuple(
        combine(tree.metrics, groups.of[begin:end], size)
        for tree, begin, end in zip(trees, bounds[:-1], bounds[1:], strict=True)
    )
    everything = {name: np.concatenate([tree.metrics[name] for tree in trees]) for name in METRICS}
    whole = Tree(
        parent=groups.parent, kind=joined["kind"][example], phase=joined["phase"][example],
        name=joined["name"][example], detail=joined["detail"][example], forward=groups.forward, strings=strings,
        metrics=combine(everything, groups.of, size), info=_merged_info([tree.info for tree in trees]),
    )  # fmt: skip
    return Aligned(whole, parts)


def merge(trees: Sequence[Tree]) -> Tree:
    """The sum of several trees: steps of one run, ranks of one job, or several runs."""
    return align(trees).tree


def subtract(after: Tree, before: Tree) -> Tree:
    """What changed: `after` minus `before`, node by node; what became cheaper is negative.

    `shortest` and `longest` are those of `after`. For runs of different length, divide both by their steps first
    (`per_step`).
    """
    aligned = align([after, before])
    new, old = aligned.metrics
    metrics = {name: new[name] if name in COMBINE else new[name] - old[name] for name in METRICS}
    tree = aligned.tree
    info = replace(
        after.info,
        device_total=after.info.device_total - before.info.device_total,
        filters={**after.info.filters, "minus": before.info.source},
    )
    return drop_empty(Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=metrics, info=info,
    ))  # fmt: skip


def per_step(tree: Tree) -> Tree:
    """All sums divided by the number of steps and rounded, which makes trees of different length comparable.

    The total is that of the rounded parts: it may differ from the exact mean by half a unit per node. A tree without
    steps counts as one step.
    """
    steps = max(tree.info.step_count, 1) * max(tree.info.runs, 1)
    metrics = {
        name: values if name in COMBINE else np.round(values / steps).astype(values.dtype)
        for name, values in tree.metrics.items()
    }
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=metrics,
        info=replace(
            tree.info,
            steps=tree.info.steps[:1],
            runs=1,
            device_total=int(metrics["device"].sum()),
            watched=one_step(tree.info.watched),
        ),
    )  # fmt: skip


def _merged_info(infos: Sequence[TreeInfo]) -> TreeInfo:
    first, trees = infos[0], sum(info.trees for info in infos)
    # A sum of sums is named as the sum of all: however they are grouped, the result is the same.
    sums = any(info.trees > 1 and info.source == f"{info.trees} trees" for info in infos)
    sources = {info.source for info in infos if info.source}
    names = f"{trees} trees" if sums or len(sources) > 1 else "".join(sources)
    # A collection counts its steps itself, so that several of them simply add up.
    same_steps = len({info.steps for info in infos}) == 1 and all(info.watched is None for info in infos)
    return TreeInfo(
        source=names,
        producer=first.producer,
        placement=first.placement,
        steps=tuple(sorted({step for info in infos for step in info.steps})),
        # Steps of one run that were built apart add up to one run; equal steps are several runs or ranks.
        runs=sum(info.runs for info in infos) if same_steps else max(info.runs for info in infos),
        trees=trees,
        device_total=sum(info.device_total for info in infos),
        unlinked=sum(info.unlinked for info in infos),
        backward=sum(info.backward for info in infos),
        linked=sum(info.linked for info in infos),
        accumulated=sum(info.accumulated for info in infos),
        modules=first.modules,
        frames=any(info.frames for info in infos),
        truncated=sum(info.truncated for info in infos),
        devices=tuple(dict.fromkeys(device for info in infos for device in info.devices)),
        versions={key: value for info in infos for key, value in info.versions.items()},
        filters=first.filters if all(info.filters == first.filters for info in infos) else {},
        watched=joined([info.watched for info in infos]),
    )
