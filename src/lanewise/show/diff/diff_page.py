"""Two runs on one page: the comparison, the trees with both costs per node, and the timeline of the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lanewise.compare.model import Comparison
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.report.model import Report
from lanewise.show.page.html import page, report_blocks
from lanewise.show.page.packing import pack
from lanewise.show.page.payload import cut, overview_block, timeline_block
from lanewise.show.page.timeline import MAX_SLICES
from lanewise.show.report.json import to_plain
from lanewise.tree.algebra import align, per_step
from lanewise.tree.build import whole_tree
from lanewise.tree.limits import limit_nodes
from lanewise.tree.model import KIND_NAMES, PHASES
from lanewise.tree.views import top_down

__all__ = ["Base", "diff_html", "diff_tree"]

_TREE_NODES = 12_000


class Base(NamedTuple):
    """An earlier run, and what changed since."""

    facts: Facts
    report: Report
    comparison: Comparison


def diff_html(
    facts: Facts, report: Report, base: Base, *, max_slices: int = MAX_SLICES, sources: Path | None = None
) -> str:
    """The page of a run, compared with a base. Where runs should not be compared, the page says why not to believe it."""
    blocks = report_blocks(facts, report, max_slices=max_slices, sources=sources)
    blocks["before"] = timeline_block(base.facts, base.report, max_slices=max_slices)
    blocks["diff"] = _diff_block(facts, base)
    return page(report, overview_block(facts, report), blocks, compared=True)


def _diff_block(facts: Facts, base: Base) -> bytes:
    comparison = to_plain(base.comparison)
    labels = [base.comparison.base.label, base.comparison.others[0].label]
    for side in (comparison["base"], *comparison["others"]):
        # Folders of this machine stay here.
        side["sources"] = [source.replace("\\", "/").rsplit("/", 1)[-1] for source in side["sources"]]
    columns, extra = diff_tree(base.facts, facts)
    anchors = [_anchor(side) for side in (base.facts, facts)]
    return pack(columns, extra={"comparison": comparison, "tree": extra, "anchors": anchors, "labels": labels})


def _anchor(facts: Facts) -> list[int]:
    """Start and end of the first steady step: where two timelines are laid over each other."""
    steps = facts.trace.steps
    if len(steps) == 0:
        return [0, 1]
    steady = np.flatnonzero(facts.steps.steady)
    row = int(steady[0]) if len(steady) else 0
    return [int(steps.start[row]), int(max(steps.end[row], facts.classes.window_end[row], steps.start[row] + 1))]


def diff_tree(base: Facts, facts: Facts) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """One tree of both runs, per step, with the costs of each side on its nodes."""
    sides = [per_step(limit_nodes(top_down(side.of(whole_tree)), _TREE_NODES)) for side in (base, facts)]
    aligned = align(sides)
    tree = aligned.tree
    names = [
        short_name(cut(text)) if work else cut(text)
        for text, work in zip(
            tree.strings, np.isin(np.arange(len(tree.strings)), tree.name[tree.leaf]).tolist(), strict=True
        )
    ]
    columns = {"parent": tree.parent, "kind": tree.kind, "phase": tree.phase, "name": tree.name, "detail": tree.detail}
    for side, metrics in zip(("a", "b"), aligned.metrics, strict=True):
        for metric in ("device", "host", "count", "launches"):
            columns[f"{side}.{metric}"] = metrics[metric]
    return columns, {"strings": names, "kinds": list(KIND_NAMES), "phases": list(PHASES)}
