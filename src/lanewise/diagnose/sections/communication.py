"""Communication of a job: what is sent in which groups and how fast, per node, and what pipelines leave idle."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.distributed.late_ranks import Job
from lanewise.measure.distributed.together.communication_figures import Traffic, traffic_of
from lanewise.measure.distributed.together.host_clocks import align_clocks
from lanewise.measure.distributed.together.matched_communications import Matched
from lanewise.measure.distributed.together.pipeline_bubble import Pipeline, pipelines_of
from lanewise.report.evidence_columns import (
    BYTES,
    COUNT,
    DEVICE,
    GROUP,
    HOST,
    KIND,
    NODE,
    RANK,
    RANKS,
    WAITING,
    Headings,
    headed,
)
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import bandwidth, count, share, text, time

__all__ = ["communication_section"]

_TRAFFIC: Headings = [
    headed(KIND, "collective"),
    headed(BYTES, "message"),
    COUNT,
    TableColumn("moving", "time", "moving"),
    WAITING,
    TableColumn("exposed", "time", "exposed"),
    TableColumn("bus", "bandwidth", "bus"),
    TableColumn("of_link", "share", "of link"),
    TableColumn("hidden", "time", "hidden"),
    TableColumn("algorithm", "bandwidth", "algorithm"),
    TableColumn("ranks", "count", "ranks"),
    GROUP,
]
_NODES: Headings = [
    NODE,
    RANKS,
    headed(HOST, "own host time"),
    headed(DEVICE, "own device time"),
    TableColumn("most", "time", "most more than others"),
    TableColumn("on", "text", "on rank"),
]
_PIPELINES: Headings = [
    RANK,
    TableColumn("stage", "count", "stage"),
    TableColumn("idle", "share", "idle"),
    TableColumn("ideal", "share", "by the schedule"),
]
_CLOCKS: Headings = [
    RANK,
    TableColumn("ahead", "time", "clock ahead"),
    TableColumn("uncertainty", "time", "to within"),
]
_CLOCKS_DIFFER_NS = 1_000_000
"""Clocks that are nearer than this are as good as one."""

_UNEVEN = 0.05


def communication_section(job: Job, together: Matched) -> Section:
    """Communication of a job. Times are per step and rank and as recorded.

    Args:
        job: the ranks in the order in which they were matched. together: what they did together.
    """
    told: list[TextBlock] = []
    tables: dict[str, Source] = {}
    if traffic := traffic_of(job.ranks, together):
        told += _of_traffic(traffic)
        data = columns_of([_row(one) for one in traffic], _TRAFFIC)
        # On a CPU neither sizes nor what is hidden are known.
        known = [one for one in _TRAFFIC if one.type == "text" or np.isfinite(data[one.key]).any()]
        tables["communication"] = Source("Communication, per step as recorded", data, known)
    if nodes := _nodes(job):
        told += _of_nodes(nodes)
        tables["nodes"] = Source("Nodes, the median rank of each", columns_of(nodes, _NODES), _NODES)
    if pipelines := pipelines_of(job, together):
        told += [_of_pipeline(one, several=len(pipelines) > 1) for one in pipelines]
        tables["pipelines"] = Source(
            "Stages of pipelines",
            columns_of([row for one in pipelines for row in _stages(one)], _PIPELINES),
            _PIPELINES,
        )
    said, table = _clocks(job, together)
    return Section([*told, *said], tables | table)


def _row(one: Traffic) -> dict[str, Any]:
    return {
        "group": one.group or "all",
        "kind": one.kind,
        "ranks": _known(one.ranks),
        "bytes": _known(one.bytes),
        "count": round(one.count, 2),
        "moving": one.moving,
        "waiting": one.waiting,
        "exposed": _known(one.exposed),
        "hidden": _known(one.hidden),
        "algorithm": one.algorithm or np.nan,
        "bus": one.bus or np.nan,
        "of_link": one.bus / one.link if one.bus and one.link else np.nan,
    }


def _known(value: float) -> float:
    return value if value >= 0 else np.nan


def _of_traffic(traffic: list[Traffic]) -> list[TextBlock]:
    moving, waiting = (sum(getattr(one, name) for one in traffic) for name in ("moving", "waiting"))
    said = [
        TextBlock(
            "In a recorded step a rank communicates for {all}: data moves for {moving} of it, the rest is waiting.",
            {"all": time(moving + waiting), "moving": time(moving)},
        )
    ]
    if all(one.exposed >= 0 for one in traffic):
        exposed, hidden = (sum(getattr(one, name) for one in traffic) for name in ("exposed", "hidden"))
        said.append(
            TextBlock(
                "Computation hides {share} of that; {exposed} is exposed.",
                {"share": share(hidden / (exposed + hidden) if exposed + hidden else 0.0), "exposed": time(exposed)},
            )
        )
    rated = [one for one in traffic if one.bus and one.link]
    if rated:
        most = max(rated, key=lambda one: one.bytes * one.count)
        said.append(
            TextBlock(
                "The largest of these, {kind} of {ranks} ranks, reaches {bus} of bus bandwidth, {share} of the {link} that "
                "the links between the cards carry each way.",
                {
                    "kind": text(most.kind),
                    "ranks": count(most.ranks),
                    "bus": bandwidth(most.bus),
                    "share": share(most.bus / most.link),
                    "link": bandwidth(most.link),
                },
            )
        )
    return said


def _nodes(job: Job) -> list[dict[str, Any]]:
    """A row for each machine where there are several and the ranks know theirs."""
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, one in enumerate(job.ranks):
        rows[one.node].append(row)
    if len(rows) < 2 or -1 in rows:
        return []
    found: list[dict[str, Any]] = []
    for node, mine in sorted(rows.items()):
        most = max(mine, key=lambda row: job.more_ns[row])
        found.append(
            {
                "node": str(node),
                "ranks": _span([job.ranks[row].rank for row in mine]),
                "host": float(np.median(job.host_ns[mine])),
                "device": float(np.median(job.device_ns[mine])),
                "most": float(job.more_ns[most]),
                "on": str(job.ranks[most].rank),
            }
        )
    return found


def _span(ranks: list[int]) -> str:
    whole = ranks == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 1
    return f"{ranks[0]} to {ranks[-1]}" if whole else ", ".join(map(str, ranks[:8])) + (", ..." if ranks[8:] else "")


def _of_nodes(nodes: list[dict[str, Any]]) -> list[TextBlock]:
    said: list[TextBlock] = []
    for key, what in (("device", "devices"), ("host", "hosts")):
        usual = float(np.median([row[key] for row in nodes]))
        slowest = max(nodes, key=lambda row: row[key])
        if usual and slowest[key] > (1.0 + _UNEVEN) * usual:
            said.append(
                TextBlock(
                    "The {what} of node {node} work {more} longer than those of the median node.",
                    {"what": text(what), "node": text(slowest["node"]), "more": share(slowest[key] / usual - 1.0)},
                )
            )
    return said


def _stages(one: Pipeline) -> list[dict[str, Any]]:
    return [
        {"rank": str(rank), "stage": at, "idle": idle, "ideal": one.ideal}
        for at, (rank, idle) in enumerate(zip(one.ranks, one.idle, strict=True))
    ]


def _of_pipeline(one: Pipeline, *, several: bool) -> TextBlock:
    parts = ", {parts} parts of the model on each" if one.parts > 1 else ""
    which = " from rank {first} on" if several else ""
    recorded = "" if one.timed else " as it was recorded"
    return TextBlock(
        f"The stages of the pipeline{which} ({{stages}}{parts}, {{microbatches}} microbatches) are idle for {{idle}} of "
        f"the step{recorded}; the schedule alone would leave them idle for {{ideal}}.",
        {
            "stages": count(len(one.ranks)),
            "parts": count(one.parts),
            "first": count(one.ranks[0]),
            "microbatches": count(one.microbatches),
            "idle": share(float(np.mean(one.idle))),
            "ideal": share(one.ideal),
        },
    )


def _clocks(job: Job, together: Matched) -> tuple[list[TextBlock], dict[str, Source]]:
    clocks = align_clocks(job.ranks, together)
    known = np.flatnonzero(np.isfinite(clocks.offset))
    if len(known) < 2 or any(job.ranks[row].base_ns == 0 for row in known):
        return [], {}
    apart = float(np.ptp(clocks.offset[known]))
    if apart < max(_CLOCKS_DIFFER_NS, 3.0 * float(np.median(clocks.uncertainty[known]))):
        return [], {}
    said = TextBlock(
        "The clocks of the hosts are up to {apart} apart; collectives align them to within {left}.",
        {"apart": time(apart), "left": time(float(np.median(clocks.uncertainty[known])))},
    )
    rows = [
        {
            "rank": str(job.ranks[row].rank),
            "ahead": float(clocks.offset[row]),
            "uncertainty": float(clocks.uncertainty[row]),
        }
        for row in known.tolist()
    ]
    return [said], {"clocks": Source("Clocks of the ranks", columns_of(rows, _CLOCKS), _CLOCKS)}
