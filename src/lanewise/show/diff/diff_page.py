"""Two runs on one page: the comparison, the trees with both costs per node, and the timeline of the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lanewise.compare.compare import compare_arms
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import measure_run
from lanewise.diagnose.explain import report_of
from lanewise.diagnose.settings import Settings
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.report.model import Report
from lanewise.show.page.html import page, report_blocks
from lanewise.show.page.packing import pack
from lanewise.show.page.payload import cut, overview_block, timeline_block
from lanewise.show.page.timeline import MAX_SLICES
from lanewise.show.report.json import to_plain
from lanewise.tree.algebra import align, per_step
from lanewise.tree.build import build_tree
from lanewise.tree.limits import limit_nodes
from lanewise.tree.model import KIND_NAMES, PHASES
from lanewise.tree.views import top_down

__all__ = ["diff_html", "diff_tree"]

_TREE_NODES = 12_000


def diff_html(
    base: Facts,
    facts: Facts,
    *,
    labels: tuple[str, str] = ("before", "after"),
    max_slices: int = MAX_SLICES,
    sources: Path | None = None,
    settings: Settings | None = None,
) -> str:
    """The page of a run, compared with a base.

    Runs that should not be compared (another card, for example) are compared all the same; the page says why not to
    believe it.
    """
    report, base_report = report_of(facts, settings), report_of(base, settings)
    blocks = report_blocks(facts, report, max_slices=max_slices, sources=sources)
    blocks["before"] = timeline_block(base, base_report, max_slices=max_slices)
    blocks["diff"] = _diff_block(base, base_report, facts, report, labels)
    return page(report, overview_block(facts, report), blocks, compared=True)


def _diff_block(base: Facts, base_report: Report, facts: Facts, report: Report, labels: tuple[str, str]) -> bytes:
    arms = [
        Arm(labels[0], [measure_run(base, base_report.findings)]),
        Arm(labels[1], [measure_run(facts, report.findings)]),
    ]
    comparison = to_plain(compare_arms(arms, anyway=True))
    for side in (comparison["base"], *comparison["others"]):
        # Folders of this machine stay here.
        side["sources"] = [source.replace("\\", "/").rsplit("/", 1)[-1] for source in side["sources"]]
    columns, extra = diff_tree(base, facts)
    anchors = [_anchor(side) for side in (base, facts)]
    return pack(columns, extra={"comparison": comparison, "tree": extra, "anchors": anchors, "labels": list(labels)})


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
    sides = [per_step(limit_nodes(top_down(build_tree(side.trace)), _TREE_NODES)) for side in (base, facts)]
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
