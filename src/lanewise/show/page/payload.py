"""Everything that a page shows besides the Report: packed blocks of the timeline, the tables and the trees.

Every cap is stated in the block itself (`omitted`, `total`), so that the page can say what it does not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.diagnose.evidence import shapes_label
from lanewise.diagnose.where.marked import marked_events
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof
from lanewise.measure.kernel_names import FAMILIES, short_name
from lanewise.measure.regime.regime import REGIMES
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.report.model import Report, TableBlock, TableColumn
from lanewise.show.page.measured import measured
from lanewise.show.page.packing import pack
from lanewise.show.page.series import IN_A_FILE, all_series, plain
from lanewise.show.page.slice_args import ARGUMENT_TABLES, arguments
from lanewise.show.page.source_lines import SourceLines
from lanewise.show.page.timeline import MAX_SLICES, Timeline, cause_intervals, timeline_of
from lanewise.show.report.json import to_plain
from lanewise.show.report.tables import cut_tables, measure_section, profiler_tables
from lanewise.trace.groups import mask_of
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import KINDS, TABLES, Kind
from lanewise.tree.inside_kernels import Inside, with_insides

__all__ = [
    "environment",
    "marked_slices",
    "names_block",
    "overview_block",
    "tables_block",
    "timeline_block",
    "tree_block",
]

_LONGEST_NAME = 4_000
_TABLE_ROWS = 2_000
_TREE_NODES = 12_000
_HISTOGRAMS = 400
_ROOFS = 300
_LONGEST_SHAPES = 300
_BINS = 32
_MOST_MARKED = 100_000


def timeline_block(facts: Facts, report: Report, *, max_slices: int = MAX_SLICES) -> bytes:
    """The whole timeline: slices, links, arguments, steps, causes, curves, and where the findings are."""
    trace = facts.trace
    timeline = timeline_of(facts, max_slices=max_slices)
    columns, extra = overview_columns(facts, timeline, points=IN_A_FILE)
    event = timeline.event
    used, code = np.unique(trace.name[event], return_inverse=True)
    columns |= {
        "start": trace.start[event],
        "duration": trace.duration[event],
        "name": code,
        "kind": trace.kind[event],
        **_links(facts, timeline),
    }
    extra |= {
        "names": names_block(facts, used),
        "args": _arguments(facts, timeline, columns),
        "omitted": timeline.omitted,
        "total": int(np.count_nonzero(trace.kind != Kind.COUNTER)),
    }
    columns["name_family"] = families_of(facts, used)
    extra["marked"] = {}
    for code, events in marked_events(facts, report).items():
        drawn, extra["marked"][code] = marked_slices(facts, timeline, events)
        columns[f"marked:{code}"] = drawn
    places = {place.event for finding in report.findings for place in finding.places if place.event >= 0}
    extra["places"] = {event: int(timeline.position[event]) for event in sorted(places)}
    return pack(
        columns,
        delta=[*_DELTA, *(name for name in columns if name.startswith(("time:", "event:", "marked:")))],
        extra=extra,
    )


_DELTA = (
    "start",
    "row_first",
    "cause_start",
    "device",
    "launch",
    "backward",
    "forward",
    "waiting",
    "step_start",
    "step_end",
    "window_start",
    "window_end",
)


def overview_columns(facts: Facts, timeline: Timeline, *, points: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What a timeline shows at every zoom: rows, steps, causes, and curves of so many points each."""
    trace, steps = facts.trace, facts.trace.steps
    cause_start, cause_duration, cause = cause_intervals(facts)
    series, counters_omitted = all_series(facts, points)
    columns: dict[str, np.ndarray] = {
        "row_lane": timeline.row_lane,
        "row_depth": timeline.row_depth,
        "row_first": timeline.row_first,
        "row_count": timeline.row_count,
        "cause_start": cause_start,
        "cause_duration": cause_duration,
        "cause": cause,
        "step_start": steps.start,
        "step_end": steps.end,
        "window_start": facts.classes.window_start,
        "window_end": facts.classes.window_end,
        "step_number": steps.number,
        "step_steady": facts.steps.steady.astype(np.int64),
    }
    for item in series:
        columns[f"time:{item.key}"] = item.time
        columns[f"value:{item.key}"] = item.value if item.value.dtype.kind == "f" else item.value.astype(np.int64)
    low = int(trace.start.min()) if len(trace) else 0
    high = int(trace.end.max()) if len(trace) else 1
    extra = {
        "span": [low, max(high, low + 1)],
        "lanes": timeline.lanes,
        "kinds": list(KINDS),
        "classes": list(CLASSES),
        "families": list(FAMILIES),
        "device": facts.classes.device,
        "regimes": [REGIMES[name][1] for name in facts.regime.per_step],
        "stepsRecorded": steps.recorded,
        "series": [plain(item) for item in series],
        "seriesOmitted": counters_omitted,
        "baseNs": str(trace.base_ns),
        "shown": _kinds_shown(facts),
    }
    return columns, extra


def _kinds_shown(facts: Facts) -> dict[str, Any]:
    """What a key of the colours has to name: kinds of events, families of kernels, and whether calls wait."""
    trace = facts.trace
    families = np.unique(facts.family_of_name[np.unique(trace.name[trace.of(Kind.KERNEL)])])
    return {
        "kinds": np.flatnonzero(np.bincount(trace.kind, minlength=1)).tolist(),
        "families": families.tolist(),
        "waits": bool(facts.host.waiting.any()),
    }


def marked_slices(facts: Facts, timeline: Timeline, events: np.ndarray) -> tuple[np.ndarray, int]:
    """Positions of the slices of some events, ascending: the longest ones of very many, and how many events there are."""
    position = timeline.position[events]
    drawn = events[position >= 0]
    if len(drawn) > _MOST_MARKED:
        drawn = drawn[np.argsort(-facts.trace.duration[drawn], kind="stable")[:_MOST_MARKED]]
    return np.sort(timeline.position[drawn]), len(events)


def names_block(facts: Facts, used: np.ndarray) -> dict[str, Any]:
    """Names by row of `used`, cut where absurdly long, with short forms of kernel names."""
    names = [facts.trace.names[int(row)] for row in used.tolist()]
    device = mask_of(len(facts.trace.names), facts.trace.name[facts.trace.device_work])
    short = {
        i: text
        for i, (row, name) in enumerate(zip(used.tolist(), names, strict=True))
        if device[row] and (text := short_name(name[:_LONGEST_NAME])) != name
    }
    return {"text": [cut(name) for name in names], "short": short}


def cut(name: str) -> str:
    """A name that a page can carry: the beginning, and how long it was."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}… ({len(name):,} characters)"


def families_of(facts: Facts, used: np.ndarray) -> np.ndarray:
    """Kernel family of each used name; only meaningful for kernels."""
    return facts.family_of_name[used].astype(np.int64) if len(used) else np.empty(0, np.int64)


def _links(facts: Facts, timeline: Timeline) -> dict[str, np.ndarray]:
    """Positions of device work and its launch, of backward and forward operators, of calls that wait."""
    trace, position = facts.trace, timeline.position
    launch = trace.links.launch
    linked = np.flatnonzero(launch >= 0)
    device, call = position[trace.device_work[linked]], position[launch[linked]]
    shown = (device >= 0) & (call >= 0)
    device, call = device[shown], call[shown]
    order = np.argsort(device, kind="stable")
    backward = np.flatnonzero(trace.links.forward_of >= 0)
    forward = position[trace.links.forward_of[backward]]
    back = position[backward]
    both = (back >= 0) & (forward >= 0)
    back, forward = back[both], forward[both]
    by_back = np.argsort(back, kind="stable")
    waiting = position[np.flatnonzero(facts.host.waiting)]
    return {
        "device": device[order],
        "launch": call[order],
        "backward": back[by_back],
        "forward": forward[by_back],
        "waiting": np.sort(waiting[waiting >= 0]),
    }


def _arguments(facts: Facts, timeline: Timeline, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Adds `event:TABLE` and `args:TABLE` columns; returns the dictionaries with what each value means."""
    result: dict[str, Any] = {}
    for table, names in ARGUMENT_TABLES.items():
        found = arguments(facts.trace, table)
        position = timeline.position[found.event]
        shown = (position >= 0) & (found.row >= 0)
        if not shown.any():
            continue
        order = np.argsort(position[shown], kind="stable")
        columns[f"event:{table}"] = position[shown][order]
        columns[f"args:{table}"] = found.row[shown][order]
        result[table] = {
            "columns": found.columns,
            "rows": found.rows,
            "omitted": found.omitted,
            "units": [TABLES[table][name].unit for name in names],
            "meanings": [TABLES[table][name].meaning for name in names],
        }
    return result


def overview_block(facts: Facts, report: Report) -> dict[str, Any]:
    """Small facts beside the Report: environment, distortion, regime shares per step."""
    return {
        "environment": environment(facts),
        "classes": list(CLASSES),
        "steps": facts.classes.of_step[:1_000].tolist(),
        "stepNumbers": facts.trace.steps.number[:1_000].tolist(),
        "steady": facts.steps.steady[:1_000].tolist(),
        "stepsOmitted": max(0, len(facts.trace.steps) - 1_000),
        "version": report.version,
    }


def environment(facts: Facts) -> list[list[str]]:
    """What recorded the trace, as pairs of words and text; the part of it that the file tells."""
    recorded = from_metadata(facts.trace.metadata)
    if recorded is None:
        return []
    rows: list[list[str]] = []
    if recorded.unprofiled_step_us:
        rows.append(["step time without the profiler", f"{recorded.unprofiled_step_us:,.1f} us"])
    if recorded.distortion:
        text = f"{recorded.distortion:.2f} times the step time"
        if recorded.distortion_low and recorded.distortion_high:
            text += f" (95 % interval {recorded.distortion_low:.2f} to {recorded.distortion_high:.2f})"
        rows.append(["while profiling", text])
    if recorded.command:
        rows.append(["command", " ".join(recorded.command)[:500]])
    rows += [
        [f"profiler {name}", f"{recorded.costs_ms[name]:,.1f} ms"]
        for name in ("start", "stop", "export")
        if name in recorded.costs_ms
    ]
    rows += _flat(recorded.environment)
    rows += [[f"fault {fault.code}", fault.sentence] for fault in recorded.faults]
    return rows[:200]


def _flat(value: Any, prefix: str = "") -> list[list[str]]:
    if isinstance(value, dict):
        return [row for key, inner in list(value.items())[:100] for row in _flat(inner, f"{prefix} {key}".strip())]
    if isinstance(value, list | tuple):
        return [[prefix, ", ".join(str(item) for item in value[:20])[:500]]]
    return [[prefix[:100], str(value)[:500]]]


def tables_block(facts: Facts) -> bytes:
    """The profiler's tables with all rows up to a cap, and how the durations of each kernel are distributed."""
    tables = profiler_tables(facts, ("operators", "kernels", "api", "copies"), limit=_TABLE_ROWS)
    if facts.device_records != "some":
        tables = {**cut_tables(measure_section(facts, "cpu").tables, limit=_TABLE_ROWS), **_of_the_host(tables)}
    extra = {
        "tables": {key: _cut_rows(to_plain(block)) for key, block in tables.items()},
        "histograms": histograms(facts),
        "measures": measured(facts),
    }
    if (points := roofline_points(facts)) is not None:
        extra["roofline"] = points
    return pack({}, extra=extra)


def _of_the_host(tables: dict[str, TableBlock]) -> dict[str, TableBlock]:
    """Tables without the columns of a device, which are all zero where there is none."""

    def kept(column: TableColumn) -> bool:
        return not column.key.startswith(("device_", "host_waiting"))

    return {
        key: TableBlock(block.title, [column for column in block.columns if kept(column)], block.rows, block.omitted)
        for key, block in tables.items()
    }


def roofline_points(facts: Facts) -> dict[str, Any] | None:
    """Operators with known work under the roofs of their device; None where either is unknown."""
    peak = facts.device.peak
    roofs = facts.roofline if peak is not None else []
    if peak is None or not any(roof.work for roof in roofs):
        return None
    points: list[dict[str, Any]] = []
    unknown = 0
    for roof in roofs:
        work = roof.work
        if work is None or not work.executed or not work.bytes or not roof.time:
            unknown += 1
        elif len(points) < _ROOFS:
            points.append(
                {
                    "name": cut(roof.name),
                    "shapes": _shapes(facts, roof),
                    "operations": work.executed * roof.calls,
                    "bytes": work.bytes * roof.calls,
                    "time": roof.time,
                    "calls": roof.calls,
                    "bound": roof.bound,
                    "share": _share(roof),
                }
            )
    peaks = {"half, tensor cores": peak.half, "TF32, tensor cores": peak.tf32, "FP32": peak.fp32}
    return {
        "bandwidth": peak.bandwidth,
        "peaks": {name: rate for name, rate in peaks.items() if rate},
        "points": points,
        "unknown": unknown,
        "card": peak.card,
    }


def _share(roof: Roof) -> float | None:
    """Share of the peak that limits a group; None where neither limits it, or the rate shows another type ran."""
    share = {"compute": roof.of_compute, "memory": roof.of_memory}.get(roof.bound, float("nan"))
    return round(share, 4) if share == share and not roof.impossible else None


def _shapes(facts: Facts, roof: Roof) -> str:
    text = shapes_label(facts, roof.operator)
    return text if len(text) <= _LONGEST_SHAPES else f"{text[:_LONGEST_SHAPES]}…"


def _cut_rows(block: dict[str, Any]) -> dict[str, Any]:
    for row in block["rows"]:
        for key, value in row.items():
            if isinstance(value, str):
                row[key] = cut(value)
    return block


def histograms(facts: Facts) -> dict[str, Any]:
    """Kernel durations in logarithmic bins, for the most expensive kernels: `[low, high, counts]` by name."""
    trace = facts.trace
    kernels = trace.of(Kind.KERNEL)
    rows: dict[str, Any] = {}
    if len(kernels) == 0:
        return rows
    names = trace.name[kernels].astype(np.int64)
    total = np.bincount(names, weights=trace.duration[kernels])
    order = np.argsort(names, kind="stable")
    names, duration = names[order], trace.duration[kernels][order]
    for name in np.argsort(-total, kind="stable")[:_HISTOGRAMS].tolist():
        first, last = np.searchsorted(names, [name, name + 1])
        if last - first < 2:
            continue
        values = np.maximum(duration[first:last], 1)
        low, high = float(values.min()), float(values.max())
        edges = np.geomspace(low, max(high, low * 1.001), _BINS + 1)
        edges[0], edges[-1] = low, max(high, low * 1.001)
        rows[cut(trace.names[int(name)])] = [low, float(edges[-1]), np.histogram(values, edges)[0].tolist()]
    return rows


def tree_block(facts: Facts, *, sources: Path | None = None, insides: Mapping[str, Inside] | None = None) -> bytes:
    """Calling-context trees, ready to draw: one per question.

    Args:
        facts: the measures.
        sources: folder of the program's sources, whose lines around each frame go into the page; None for no source.
        insides: what was sampled inside of kernels, by their names.
    """
    from lanewise.tree.build import whole_tree
    from lanewise.tree.limits import limit_nodes
    from lanewise.tree.model import KIND_NAMES, PHASES, NodeKind, Tree
    from lanewise.tree.views import bottom_up, modules, top_down

    tree = facts.of(whole_tree)
    whole = with_insides(tree, insides) if insides else tree
    views: dict[str, Tree] = {"program": top_down(whole), "ran": top_down(whole, placement="ran", fold=False)}
    if tree.total("device"):
        views["kernels"] = bottom_up(tree)
    views["modules"] = modules(top_down(tree, fold=False))
    columns: dict[str, np.ndarray] = {}
    strings: dict[str, int] = {}
    frames: dict[str, None] = {}
    shown: dict[str, Any] = {}
    for key, full in views.items():
        view = limit_nodes(full, _TREE_NODES)
        if key == "modules" and not (view.kind == KIND_NAMES.index("module")).any():
            continue
        work = np.isin(np.arange(len(view.strings)), view.name[view.leaf])
        texts = [
            short_name(text[:_LONGEST_NAME]) if is_work else cut(text)
            for text, is_work in zip(view.strings, work.tolist(), strict=True)
        ]
        rows = np.array([strings.setdefault(text, len(strings)) for text in texts], dtype=np.int64)
        columns |= {
            f"{key}.parent": view.parent,
            f"{key}.kind": view.kind,
            f"{key}.phase": view.phase,
            f"{key}.name": rows[view.name],
            f"{key}.detail": rows[view.detail],
        }
        frames |= dict.fromkeys(texts[row] for row in view.name[view.kind == NodeKind.FRAME].tolist())
        columns |= {f"{key}.{metric}": view.metrics[metric] for metric in _TREE_METRICS}
        shown[key] = {"nodes": len(view), "total": len(full), "truncated": view.info.truncated}
    extra = {
        "strings": list(strings),
        "kinds": list(KIND_NAMES),
        "phases": list(PHASES),
        "views": shown,
        "metrics": list(_TREE_METRICS),
        "frames": tree.info.frames,
        "steps": list(tree.info.steps),
    }
    if sources is not None:
        excerpts, omitted = SourceLines(sources).excerpts(frames)
        extra["source"] = {"excerpts": {strings[name]: list(found) for name, found in excerpts.items()}}
        extra["source"]["omitted"] = omitted
    return pack(columns, extra=extra)


_TREE_METRICS = ("device", "host", "count", "calls", "launches", "bytes", "gap", "allocated")
