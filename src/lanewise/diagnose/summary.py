"""The parts of a Report that are not findings: source, regime, tables, chain, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise.diagnose.evidence import table, table_of
from lanewise.diagnose.sections.cpu import cpu_sentence, functions_source, operators_source, steps_source
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.measure.launch.bubbles import loader_rows
from lanewise.measure.launch.dispatch_chain import Link
from lanewise.measure.regime.regime import REGIMES
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.measure.validity.device_signs import memory_calls
from lanewise.report.evidence_columns import (
    ANNOTATION_DURATION,
    ANNOTATION_START,
    BUSY,
    BYTES,
    COPIES,
    COUNT,
    DEVICE_TOTAL,
    DURATION,
    FIRST_DISPATCH,
    HOST_SELF,
    HOST_TOTAL,
    KERNELS,
    LAUNCHES,
    MAX,
    MEDIAN,
    NAME,
    NUMBER,
    PERIOD,
    SHARE,
    START,
    TOTAL,
    WAITING,
    WHAT,
    Headings,
    headed,
)
from lanewise.report.gain import gain_text, helps
from lanewise.report.model import Finding, RegimeSummary, SourceSummary, TableBlock, TableColumn
from lanewise.report.quantity import format_quantity
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind

__all__ = [
    "API_COLUMNS",
    "COPY_COLUMNS",
    "KERNEL_COLUMNS",
    "OPERATOR_COLUMNS",
    "chain_block",
    "chain_rows",
    "gap_block",
    "regime_summary",
    "report_tables",
    "source_summary",
    "step_block",
    "verdict",
]

_SPREAD: Headings = [
    TableColumn("mean", "time", "mean"),
    MEDIAN,
    TableColumn("min", "time", "min"),
    MAX,
    TableColumn("stddev", "time", "stddev"),
]
OPERATOR_COLUMNS: Headings = [
    headed(NAME, "operator"),
    headed(COUNT, "count"),
    HOST_SELF,
    HOST_TOTAL,
    TableColumn("host_waiting", "time", "of it waiting"),
    TableColumn("device_self", "time", "device self"),
    DEVICE_TOTAL,
    *_SPREAD,
]
KERNEL_COLUMNS: Headings = [
    NAME,
    TableColumn("family", "text", "family"),
    headed(COUNT, "count"),
    headed(TOTAL, "total"),
    SHARE,
    *_SPREAD,
]
API_COLUMNS: Headings = [
    headed(NAME, "API call"),
    TableColumn("role", "text", "role"),
    headed(COUNT, "count"),
    headed(TOTAL, "total"),
    TableColumn("self", "time", "self"),
    WAITING,
    *_SPREAD,
]
COPY_COLUMNS: Headings = [
    headed(NAME, "copy"),
    headed(COUNT, "count"),
    headed(TOTAL, "device time"),
    BYTES,
    TableColumn("bandwidth", "bandwidth", "bandwidth"),
    TableColumn("call_time", "time", "host time of the calls"),
    *_SPREAD,
]

_MAX_CHAIN = 16
# From this share of a mixed step on, what waits for the host has a way on of its own.
_HOST_TOO = 0.2


def source_summary(facts: Facts) -> SourceSummary:
    """What was read, and what recorded it."""
    trace, reading = facts.trace, facts.trace.reading
    properties = trace.metadata.get("deviceProperties")
    devices: list[Any] = properties if isinstance(properties, list) else []
    first = devices[0] if devices and isinstance(devices[0], dict) else {}
    used = {
        p
        for p, s in zip(trace["lanes"]["process"].tolist(), trace["lanes"]["side"].tolist(), strict=True)
        if s == "device"
    }
    software: dict[str, str] = {}
    for key in (
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "hip_runtime_version",
        "hip_driver_version",
        "roctracer_version",
    ):
        value = trace.metadata.get(key)
        if isinstance(value, int | str):
            software[key] = str(value)[:40]
    health = facts.health
    return SourceSummary(
        path=reading.source,
        bytes=reading.bytes_read,
        digest=reading.digest,
        events=len(trace),
        generation=reading.generation,
        device=str(first.get("name", ""))[:100],
        devices=len(used),
        software=software,
        recorded={
            "shapes": health.shapes,
            "stacks": health.stacks,
            "modules": health.modules,
            "memory": health.memory,
            "sync_events": health.sync_events,
        },
    )


def regime_summary(facts: Facts, findings: list[Finding]) -> RegimeSummary:
    """The regime, with the sentence of its finding."""
    regime, steps = facts.regime, facts.steps
    code, name = REGIMES[regime.name]
    sentence = next((f.title for f in findings if f.kind == "regime"), "")
    return RegimeSummary(
        code=code,
        name=name,
        sentence=sentence,
        shares={k: round(v, 4) for k, v in regime.shares.items()},
        busy_share=round(regime.busy_share, 4),
        step_us=round(steps.step_ns / 1e3, 3),
        step_low_us=round(facts.unprofiled.low_ns / 1e3, 3),
        step_high_us=round(facts.unprofiled.high_ns / 1e3, 3),
        recorded_step_us=round(steps.period_ns / 1e3, 3),
        unprofiled=steps.rebased,
        per_step=[REGIMES[r][1] for r in regime.per_step],
        as_recorded=REGIMES[regime.as_recorded][1],
    )


def step_block(facts: Facts) -> TableBlock:
    """One row per step."""
    if facts.on_cpu:
        source = steps_source(facts)
        return table_of(source.title, source.data, source.headings, limit=64)
    data = facts.steps.table
    headings = [
        NUMBER,
        TableColumn("host_duration", "time", "host window"),
        headed(PERIOD, "period"),
        BUSY,
        KERNELS,
        COPIES,
        LAUNCHES,
        TableColumn("wait_time", "time", "host waits"),
    ]
    seen = [name for name in CLASSES if data[name].any()]
    headings += [TableColumn(name, "time", name) for name in seen]
    headings.append(TableColumn("regime", "text", "bound by"))
    rows = data.rows(64)
    for row, steady, regime in zip(rows, facts.steps.steady.tolist(), facts.regime.per_step, strict=False):
        row["number"] = ("all" if not facts.trace.steps.recorded else f"#{row['number']}") + ("" if steady else " *")
        row["regime"] = REGIMES[regime][1]
    title = "Steps" if facts.steps.steady.all() else "Steps (* not used in statistics)"
    block = table(title, headings, rows, limit=64)
    return TableBlock(block.title, block.columns, block.rows, max(0, data.height - len(rows)))


def gap_block(facts: Facts) -> TableBlock | None:
    """What happened before each step's first launch; None where nothing was launched."""
    data = facts.gaps
    if facts.on_cpu or not (data["first_dispatch"] >= 0).any():
        return None
    headings: Headings = [
        NUMBER,
        ANNOTATION_START,
        FIRST_DISPATCH,
        TableColumn("gap", "time", "gap between"),
        TableColumn("before_launch", "time", "in operator, before launch"),
        TableColumn("first_delay", "time", "launch to start"),
        ANNOTATION_DURATION,
    ]
    rows = data.rows(24)
    for row in rows:
        row["number"] = f"#{row['number']}" if facts.trace.steps.recorded else "all"
    block = table("Before the first launch of each step", headings, rows, limit=24)
    return TableBlock(block.title, block.columns, block.rows, max(0, data.height - len(rows)))


def report_tables(facts: Facts, limit: int = 10) -> dict[str, TableBlock]:
    """The four tables of the profiler, top rows only; of a run on the CPU nothing that speaks of a device."""
    if facts.on_cpu:
        return _cpu_tables(facts, limit)
    tables = {
        "operators": _named(facts.operators, "Operators, by host self time", OPERATOR_COLUMNS, limit),
        "kernels": _named(facts.kernels, "Kernels", KERNEL_COLUMNS, limit),
        "api": _named(facts.api, "API calls", API_COLUMNS, limit),
        "copies": _named(_bytes_per_second(facts.copies), "Copies and sets", COPY_COLUMNS, limit),
    }
    return {name: block for name, block in tables.items() if block.rows}


def _cpu_tables(facts: Facts, limit: int) -> dict[str, TableBlock]:
    if facts.operators.height == 0:
        return {}
    source = operators_source(facts)
    host = [one for one in OPERATOR_COLUMNS if not one.key.startswith(("device", "host_waiting"))]
    tables = {
        **(_functions(facts, limit) if facts.functions.height else {}),
        "cpu": table_of(source.title, source.data, source.headings, limit=limit),
        "operators": _named(facts.operators, "Operators, by host self time", host, limit),
    }
    return {name: block for name, block in tables.items() if block.rows}


def _functions(facts: Facts, limit: int) -> dict[str, TableBlock]:
    source = functions_source(facts)
    return {"functions": table_of(source.title, source.data, source.headings, limit=limit)}


def _named(data: Columns, title: str, headings: Headings, limit: int) -> TableBlock:
    return table_of(title, data, headings, limit=limit)


def _bytes_per_second(data: Columns) -> Columns:
    return Columns({**{name: data[name] for name in data}, "bandwidth": data["bandwidth"] * 1e9})


def chain_block(facts: Facts) -> TableBlock | None:
    """The dispatch chain of a typical step if it is short, else the way down to its longest device op."""
    chain = facts.chain()
    links = list(chain.links)
    if not any(link.delay_ns >= 0 for link in links):
        return None
    title = "From Python to the kernel"
    if facts.trace.steps.recorded:
        title += f", step #{chain.number}"
    if len(links) > _MAX_CHAIN:
        links = _way_to_longest(facts, links)
        title += ": the way to its longest device op"
    headings: Headings = [
        WHAT,
        START,
        TableColumn("gap", "time", "gap before"),
        headed(DURATION, "time"),
        TableColumn("delay", "time", "launch to start"),
    ]
    return table(title, headings, chain_rows(facts, links), limit=len(links))


def chain_rows(facts: Facts, links: Sequence[Link]) -> list[dict[str, Any]]:
    """Rows `what, start, gap, duration, delay` of a chain; `what` is indented by nesting."""
    base = min((link.depth for link in links), default=0)
    return [
        {
            "what": "  " * (link.depth - base) + _chain_label(facts, link),
            "start": link.start_ns,
            "gap": link.gap_ns,
            "duration": link.duration_ns,
            "delay": link.delay_ns,
        }
        for link in links
    ]


def _chain_label(facts: Facts, link: Link) -> str:
    if facts.trace.kind[link.event] in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET):
        return f"→ {short_name(link.name, 60)}"
    return link.name if len(link.name) <= 60 else link.name[:59] + "…"


def _way_to_longest(facts: Facts, links: list[Link]) -> list[Link]:
    work = [i for i, link in enumerate(links) if link.delay_ns >= 0]
    at = max(work, key=lambda i: links[i].duration_ns)
    way = [links[at]]
    for i in range(at - 1, -1, -1):
        if links[i].depth < way[0].depth and links[i].delay_ns < 0:
            way.insert(0, links[i])
    return way


def verdict(facts: Facts, findings: list[Finding]) -> str:
    """One or two sentences: what binds the run, and where to start."""
    regime = next((f for f in findings if f.kind == "regime"), None)
    problems = [f for f in findings if helps(f)]
    parts = [f.title for f in findings if f.code == "MEA114"]
    parts += [regime.title] if regime else []
    if facts.device_records != "some":
        parts = [_cpu_sentence(facts)]
    if problems:
        first = problems[0]
        parts.append(f"Start with {first.code} ({first.name}): {gain_text(first)}.")
    elif facts.regime.name == "undetermined" and facts.device_records == "some" and regime:
        parts.append(f"To find out, {regime.fix}")
    elif facts.regime.name == "mixed":
        way = f" Try: {regime.fix}" if regime and facts.regime.shares.get("host", 0.0) >= _HOST_TOO else ""
        parts.append(f"No single fix would make the step measurably shorter.{way}")
    elif regime and facts.device_records == "some" and regime.fix:
        parts.append(f"{_WAY_ON.get(facts.regime.name, '')}{regime.fix[0].upper()}{regime.fix[1:]}")
    return " ".join(parts)


# Where no finding would give anything: what the way on rests on.
_WAY_ON = {
    "compute": "No finding would make the kernels faster. ",
    "communication": "Whether data moves or a rank is late cannot be told from one rank. ",
}


def _cpu_sentence(facts: Facts) -> str:
    if not any(row["kind"] == "operator" for row in facts.operators.rows()):
        return "The trace holds no operators and no device work: there is nothing to explain."
    where = f": {format_quantity('time', facts.steps.step_ns)} per step" if facts.trace.steps.recorded else ""
    match facts.device_records:
        case "memory only":
            return _only_memory(facts, where)
        case "not recorded":
            ran = (
                f"What the GPU did was not recorded, though the program used one ({facts.device_signs}): record with "
                "`ProfilerActivity.CUDA` (or your device's), or with `lanewise run`."
            )
            ran += f" A step takes {where[2:].removesuffix(' per step')} on the host." if where else ""
        case "lost":
            ran = "What the GPU did is missing from this recording, so that nothing can be said about it: record again."
        case "cut off":
            ran = "The file is cut off, and nothing of a GPU stands before that: whether one worked cannot be said."
        case _:
            ran = f"{_who_ran(facts)} ran on the CPU{where}."
    return f"{ran} {cpu_sentence(facts)}"


# What the recorder says was not seen, and what that leaves.
_WORKERS = "_MultiProcessingDataLoaderIter"
_PART = {"other-threads": "one of several threads", "child-processes": "one of several processes"}


def _who_ran(facts: Facts) -> str:
    recorded = from_metadata(facts.trace.metadata)
    known = {fault.code for fault in (recorded.faults if recorded else ())}
    loads = loader_rows(facts)
    if facts.trace.name_mask(_WORKERS)[facts.trace.name[loads]].any():
        # The children load what this process computes with: the time that it waits for them is in the recording.
        known -= {"child-processes"}
    parts = [part for code, part in _PART.items() if code in known]
    return f"What was recorded, {' of '.join(parts)}," if parts else "Everything"


def _only_memory(facts: Facts, where: str) -> str:
    calls = memory_calls(facts.trace)
    if facts.trace.steps.recorded:
        calls = facts.steady_events(calls)
    spent = float(facts.trace.duration[calls].sum()) / facts.steady_count
    part = format_quantity("share", min(1.0, spent / max(1.0, facts.steps.period_ns)))
    return (
        f"No kernel was launched{where}. All that the program used of the GPU is memory: asking the driver for it takes "
        f"{part} of the time."
    )
