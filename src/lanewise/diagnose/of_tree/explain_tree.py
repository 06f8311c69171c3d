"""`explain` for a calling-context tree: a Tree -> a Report."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from lanewise._version import __version__
from lanewise.diagnose.evidence import table
from lanewise.diagnose.health_notes import settings_notes
from lanewise.diagnose.of_tree.ranked_contexts import diagnose_tree
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.settings import Settings
from lanewise.measure.kernel_names import short_name
from lanewise.measure.regime.python_functions import NO_FUNCTION, OWN_CODE, in_function
from lanewise.measure.regime.regime import REGIMES
from lanewise.report.evidence_columns import (
    BUSY,
    CALLS,
    COPIES,
    COUNT,
    DEVICE_TOTAL,
    FUNCTION,
    HOST_SELF,
    HOST_TOTAL,
    INSIDE,
    KERNELS,
    LAUNCHES,
    MEDIAN,
    NAME,
    NUMBER,
    OPERATOR,
    PERIOD,
    SHARE,
    TIME,
    TOTAL,
    Headings,
    headed,
)
from lanewise.report.gain import gain_text, helps
from lanewise.report.model import (
    SCHEMA,
    Finding,
    Level,
    Note,
    RegimeSummary,
    Report,
    SourceSummary,
    StepsSummary,
    TableBlock,
    TableColumn,
)
from lanewise.report.priced import cost_of, priced
from lanewise.report.quantity import format_quantity
from lanewise.trace.metadata import Energy
from lanewise.tree.flat import flat
from lanewise.tree.forest import nearest_marked
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.views import user_frames
from lanewise.tree.watching.watched_text import cost_lines, loss_lines

__all__ = ["explain_tree"]

_ROWS = 10
_NAMED = 3


def explain_tree(tree: Tree, *, path: str = "", size: int = 0, settings: Settings | None = None) -> Report:
    """Explain a calling-context tree.

    Args:
        tree: the tree of `watch`, or one built from a trace.
        path: where it was read from; size: of the file, bytes.
        settings: which rules run, and their thresholds.

    Raises:
        UsageError: the settings name a code or a threshold that does not exist.
    """
    settings = settings or Settings()
    contexts = Contexts(tree)
    findings, checks = diagnose_tree(contexts, settings)
    cost = cost_of(contexts.step.ns / 1e3 if contexts.marked else 0.0, _energy(contexts), settings.price)
    return Report(
        schema=SCHEMA,
        version=__version__,
        source=_source(contexts, path, size),
        health=[*_health(contexts), *settings_notes(settings)],
        steps=StepsSummary(
            source="watched" if tree.info.watched is not None else "recorded",
            count=contexts.tree.info.step_count,
            steady=list(tree.info.steps),
            table=_steps(contexts),
        ),
        regime=_regime(contexts, findings),
        findings=priced(findings, cost),
        checks=checks,
        tables=_tables(contexts),
        verdict=_verdict(contexts, findings),
        cost=cost,
    )


def _energy(contexts: Contexts) -> Energy | None:
    watched = contexts.whole.info.watched
    if watched is None or not watched.joules or not watched.joule_steps:
        return None
    return Energy(joules=watched.joules, steps=watched.joule_steps, seconds=watched.joule_seconds)


def _source(contexts: Contexts, path: str, size: int) -> SourceSummary:
    info = contexts.whole.info
    identity = "\n".join([info.source, *contexts.whole.strings]).encode("utf-8", "replace")
    return SourceSummary(
        path=path or info.source or "a tree in memory",
        bytes=size,
        digest=hashlib.sha256(identity + contexts.whole.metrics["host"].tobytes()).hexdigest()[:32],
        events=0,
        generation=info.producer,
        device=", ".join(info.devices)[:100],
        devices=len(info.devices) or int(contexts.has_device),
        software=dict(info.versions),
        recorded={"stacks": info.frames, "modules": info.modules != "none"},
        contexts=len(contexts.whole),
    )


def _health(contexts: Contexts) -> list[Note]:
    info, watched = contexts.tree.info, contexts.tree.info.watched
    notes: list[Note] = []

    def note(level: Level, topic: str, text: str) -> None:
        notes.append(Note(level, topic, text))

    if not contexts.tree.metrics["host"].any() and not contexts.has_device:
        note("bad", "file", "the tree holds no time at all: nothing ran while it was collected")
    if watched is not None:
        for line in loss_lines(watched):
            note("warn", "losses", line)
        if not contexts.marked:
            note("warn", "steps", "no steps were seen: times are those of the whole collection, its start included")
        for line in cost_lines(watched):
            note("info", "cost", line)
    elif not contexts.times_python:
        note("warn", "stacks", "the tree comes from a trace without stacks: time between operators is not in it")
    if watched is None:
        note("info", "profiler", "built from a trace: host times are as recorded, what the profiler adds included")
    if info.runs > 1:
        note("info", "runs", f"{info.runs} recordings were added up; times are means over them")
    if info.unlinked:
        note("info", "device", f"{info.unlinked:,} kernels, copies and sets have no known launch")
    note("info", "tree", "a tree has sums and no timeline: gains are bounds, and what needs an order needs a trace")
    return notes


def _regime(contexts: Contexts, findings: list[Finding]) -> RegimeSummary:
    code, name = REGIMES[contexts.regime]
    step = contexts.step
    known = contexts.times_python
    # Where the tree does not say what binds, its sums are no shares of a step.
    shares = {} if contexts.regime == "undetermined" else contexts.shares
    return RegimeSummary(
        code=code,
        name=name,
        sentence=next((finding.title for finding in findings if finding.kind == "regime"), ""),
        shares={key: round(value, 4) for key, value in shares.items()},
        busy_share=round(1.0 - shares["host"], 4) if "host" in shares else float(bool(shares)),
        step_us=round(step.ns / 1e3, 3) if known else 0.0,
        step_low_us=round(step.low / 1e3, 3) if known else 0.0,
        step_high_us=round(step.high / 1e3, 3) if known else 0.0,
        recorded_step_us=round(step.recorded / 1e3, 3) if known else 0.0,
        unprofiled=False,
        per_step=[],
        as_recorded=name,
    )


def _steps(contexts: Contexts) -> TableBlock:
    """What a step is on average: a tree does not keep one apart from another."""
    leaf, copy = contexts.tree.leaf, contexts.tree.kind == NodeKind.COPY
    row = {
        "number": f"mean of {contexts.steps:,}" if contexts.marked else "all",
        "period": contexts.step.ns,
        "recorded": contexts.step.recorded,
        "busy": float(contexts.device.sum()),
        "kernels": float(contexts.count[contexts.kernels].sum()),
        "copies": float(contexts.count[leaf & copy].sum()),
        "launches": float(contexts.launches.sum()),
    }
    shown = _STEPS if contexts.has_device else _STEPS[:3]
    return table("Steps", shown, [row])


_STEPS: Headings = [
    NUMBER,
    PERIOD,
    TableColumn("recorded", "time", "as recorded"),
    headed(BUSY, "on the device"),
    KERNELS,
    COPIES,
    LAUNCHES,
]


# -- what ran ----------------------------------------------------------------------------------------------------------

_OPERATORS: Headings = [headed(NAME, "operator"), headed(COUNT, "calls"), HOST_SELF, HOST_TOTAL, DEVICE_TOTAL]
_KERNELS: Headings = [NAME, headed(COUNT, "count"), headed(TOTAL, "total"), SHARE, headed(MEDIAN, "mean")]
_FUNCTIONS: Headings = [FUNCTION, headed(INSIDE, "of it in"), headed(TIME, "self time"), headed(SHARE, "of the step")]
_ON_CPU: Headings = [OPERATOR, CALLS, headed(TIME, "self time"), SHARE]


def _tables(contexts: Contexts) -> dict[str, TableBlock]:
    operators, functions = _operators(contexts), _functions(contexts)
    per = ", per step" if contexts.marked else ""
    if contexts.has_device:
        kernels = _kernels(contexts)
        tables = {
            "kernels": table(f"Kernels, copies and sets{per}", _KERNELS, kernels, limit=_ROWS),
            "operators": table(f"Operators, by host self time{per}", _OPERATORS, operators, limit=_ROWS),
        }
    else:
        total = max(1.0, sum(row["host_self"] for row in operators))
        rows = [
            {
                "operator": row["name"],
                "calls": row["count"],
                "time": row["host_self"],
                "share": row["host_self"] / total,
            }
            for row in operators
        ]
        tables = {
            "functions": table(f"Python functions, by the time between their operators{per}", _FUNCTIONS, functions),
            "cpu": table(f"Operators on the CPU, by self time{per}", _ON_CPU, rows, limit=_ROWS),
        }
    return {name: block for name, block in tables.items() if block.rows}


def _operators(contexts: Contexts) -> list[dict[str, Any]]:
    """By name: calls, own and inclusive host time, device time; the largest own time first. ns per step."""
    data = flat(contexts.tree, "operator", metric="host", sort="host")
    host = contexts.steps * contexts.slowed
    return [
        {
            "name": row["name"],
            "count": row["calls"] / contexts.steps,
            "host_self": row["host"] / host,
            "host_total": row["total_host"] / host,
            "device_total": row["total_device"] / contexts.steps,
        }
        for row in data.rows()
        if row["calls"] and row["host"]
    ]


def _kernels(contexts: Contexts) -> list[dict[str, Any]]:
    data = flat(contexts.tree, "kernel", sort="device")
    total = max(1, contexts.tree.total("device"))
    return [
        {
            "name": short_name(row["name"]),
            "count": row["count"] / contexts.steps,
            "total": row["device"] / contexts.steps,
            "share": row["device"] / total,
            "median": row["mean"],
        }
        for row in data.rows()
        if row["count"]
    ]


def _functions(contexts: Contexts) -> list[dict[str, Any]]:
    """Functions of the program's by the time between what they call, ns per step; of libraries inside of them apart."""
    tree = contexts.tree
    frame = tree.kind == NodeKind.FRAME
    own = nearest_marked(tree.parent, user_frames(tree))
    spent: dict[tuple[str, str], float] = {}
    for node in np.flatnonzero(frame & (contexts.host > 0)).tolist():
        around = int(own[node])
        inside = OWN_CODE if around == node else contexts.function(node)
        pair = contexts.function(around) if around >= 0 else NO_FUNCTION, inside
        spent[pair] = spent.get(pair, 0.0) + float(contexts.host[node])
    ordered = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"function": function, "inside": inside, "time": ns, "share": contexts.of_step(ns)}
        for (function, inside), ns in ordered
    ]


# -- in a sentence -----------------------------------------------------------------------------------------------------


def _verdict(contexts: Contexts, findings: list[Finding]) -> str:
    regime = next((finding for finding in findings if finding.kind == "regime"), None)
    first = next((finding for finding in findings if helps(finding)), None)
    parts = [regime.title] if regime and contexts.has_device else [] if contexts.has_device else [_on_the_cpu(contexts)]
    if first is not None:
        parts.append(f"Start with {first.code} ({first.name}): {gain_text(first)}.")
    elif regime is not None and contexts.has_device and regime.fix:
        parts.append(f"{regime.fix[0].upper()}{regime.fix[1:]}")
    return " ".join(parts)


def _on_the_cpu(contexts: Contexts) -> str:
    operators = _operators(contexts)
    if not operators:
        return "The tree holds no operators and no device work: there is nothing to explain."
    where = f": {format_quantity('time', contexts.step.ns)} per step" if contexts.marked else ""
    of_it = "the step" if contexts.marked else "what was watched"
    step = max(1.0, contexts.step.ns)
    both = [(row["name"], row["host_self"]) for row in operators] + [
        (in_function(row["function"], row["inside"]), row["time"]) for row in _functions(contexts)
    ]
    top = sorted(both, key=lambda item: -item[1])[:_NAMED]
    told = ", ".join(f"{format_quantity('share', min(1.0, spent / step))} {name}" for name, spent in top if spent > 0)
    return f"Everything ran on the CPU{where}. {of_it[0].upper()}{of_it[1:]} by self time: {told}."
