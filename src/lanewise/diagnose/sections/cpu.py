"""A run on the CPU: which operators its time goes to, with what arguments, and what lies between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label
from lanewise.diagnose.sections.section import Section, Source
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.launch.bubbles import loader_rows
from lanewise.measure.regime.python_functions import NO_FUNCTION, OWN_CODE, function_label, in_function
from lanewise.report.evidence_columns import (
    CALLS,
    DTYPE,
    FLOP_RATE,
    FUNCTION,
    INSIDE,
    LINE,
    NUMBER,
    OPERATOR,
    OPERATORS,
    PERIOD,
    SHAPES,
    SHARE,
    TIME,
    Headings,
    headed,
)
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import Quantity, count, flop_rate, format_quantity, share, text, time
from lanewise.trace.metadata import from_metadata

__all__ = ["cpu_section", "cpu_sentence", "cpu_statements", "functions_source", "operators_source", "steps_source"]

_OPERATORS: Headings = [OPERATOR, SHAPES, DTYPE, CALLS, headed(TIME, "self time"), SHARE, FLOP_RATE]
_FUNCTIONS: Headings = [
    FUNCTION,
    headed(INSIDE, "of it in"),
    CALLS,
    headed(TIME, "self time"),
    headed(SHARE, "of the step"),
]
_WHOLE = {"calls": "calls", "share": "share"}
"""Headings where nothing marks steps."""
_STEPS: Headings = [
    NUMBER,
    headed(PERIOD, "step time"),
    OPERATORS,
    TableColumn("inside", "time", "in operators"),
    TableColumn("outside", "time", "outside them"),
]

# Formulas leave out what a library adds; a share of matrix work below this is not what the run is about.
_MATRIX_FROM = 0.2

# Operators in half of the step are what to look at first; below, what lies between them is.
_MOSTLY_INSIDE = 0.5
_WORTH_NAMING = 0.02
_NAMED = 3
_NEARLY_ALL = 0.995

# Caches and clocks alone make equal calls differ by some ten percent.
_ABOVE_BEST_FROM = 0.4

# Locating a call walks the Python frames around it.
_MOST_LOCATED = 100


def cpu_section(facts: Facts) -> Section:
    """Operators by arguments and own time; only for a run without device work."""
    if not facts.on_cpu:
        return Section([TextBlock("The run uses a device, or may have: `operators` holds the host's time.")], {})
    data = facts.cpu.operators
    if data.height == 0:
        return Section([TextBlock("The trace holds no operators in its steady steps.")], {})
    sources = {"cpu": operators_source(facts)}
    if facts.functions.height:
        sources["functions"] = functions_source(facts)
    return Section(cpu_statements(facts), sources)


def functions_source(facts: Facts) -> Source:
    """Python functions by self time, per steady step."""
    data, steps = facts.functions, facts.steady_count
    columns: dict[str, np.ndarray] = {
        **data,
        "function": _texts([_function(name) for name in data["function"].tolist()]),
        "inside": _texts([_inside(name) for name in data["inside"].tolist()]),
        "calls": data["calls"] / steps,
        "time": data["time"] / steps,
    }
    per = " per step" if facts.trace.steps.recorded else ""
    headings = _FUNCTIONS if per else [headed(one, _WHOLE.get(one.key, one.label)) for one in _FUNCTIONS]
    return Source(f"Python functions, by self time{per}", Columns(columns), headings)


def _function(name: str) -> str:
    return function_label(name) if name else NO_FUNCTION


def _inside(name: str) -> str:
    return function_label(name) if name else OWN_CODE


def cpu_sentence(facts: Facts) -> str:
    """What the time of a run on the CPU goes to, in one or two sentences: functions and operators by their share of it."""
    steps = facts.trace.steps.recorded
    of_it = "the step" if steps else "the recording"
    length = max(1, int(facts.cpu.steps["duration"][facts.steps.steady].sum()))
    total = max(1, int(facts.cpu.operators["time"].sum()))
    by_name: dict[str, float] = {}
    for name, spent in zip(facts.cpu.operators["operator"].tolist(), facts.cpu.operators["time"].tolist(), strict=True):
        by_name[name] = by_name.get(name, 0.0) + spent
    operators = sorted(by_name.items(), key=lambda item: -item[1])[:_NAMED]
    functions = facts.functions.rows(_NAMED)
    if functions and functions[0]["time"] > (operators[0][1] if operators else 0):
        both = [
            (in_function(_function(row["function"]), _inside(row["inside"])), float(row["time"])) for row in functions
        ] + operators
        shown = [(name, spent / length) for name, spent in sorted(both, key=lambda item: -item[1]) if spent > 0]
        told = [f"{_percent(part)} {name}" for name, part in shown[:_NAMED] if part >= _WORTH_NAMING]
        return f"{of_it[0].upper()}{of_it[1:]} by self time: {', '.join(told)}."
    top = ", ".join(f"{name} ({_percent(spent / total)})" for name, spent in operators)
    if facts.cpu.inside >= _MOSTLY_INSIDE:
        return f"Most of the operators' self time: {top}."
    loading = f" ({_percent(facts.cpu.loading)} in the data loader)" if facts.cpu.loading >= _WORTH_NAMING else ""
    how = "" if facts.health.stacks else " `lanewise run --stacks` names the functions."
    outside = _percent(max(0.0, 1 - facts.cpu.inside))
    own = f" Of the operators' self time: {top}." if top else ""
    return f"{outside} of {of_it} is spent outside operators{loading}.{how}{own}"


def _percent(part: float) -> str:
    return format_quantity("share", part)


def operators_source(facts: Facts) -> Source:
    """Operators by arguments, per steady step."""
    data, steps = facts.cpu.operators, facts.steady_count
    events = data["event"].tolist()
    columns: dict[str, np.ndarray] = {
        **data,
        "calls": data["calls"] / steps,
        "time": data["time"] / steps,
        "shapes": _texts([shapes_label(facts, event) for event in events]),
    }
    headings = _OPERATORS
    if facts.health.stacks:
        columns["line"] = _texts([_line(facts, e) if row < _MOST_LOCATED else "" for row, e in enumerate(events)])
        headings = [_OPERATORS[0], LINE, *_OPERATORS[1:]]
    title = "Operators on the CPU, by self time"
    if facts.trace.steps.recorded:
        return Source(f"{title} per step", Columns(columns), headings)
    return Source(title, Columns(columns), [headed(one, _WHOLE.get(one.key, one.label)) for one in headings])


def steps_source(facts: Facts) -> Source:
    """Steps with the time inside and outside of operators."""
    data = facts.cpu.steps
    outside = np.maximum(data["duration"] - data["inside"], 0)
    recorded = facts.trace.steps.recorded
    marks = ["" if steady else " *" for steady in facts.steps.steady.tolist()]
    labels = [f"#{n}{m}" if recorded else "all" for n, m in zip(data["number"].tolist(), marks, strict=True)]
    columns = {**data, "number": _texts(labels), "outside": outside, "period": data["duration"]}
    return Source("Steps" if facts.steps.steady.all() else "Steps (* not used in statistics)", Columns(columns), _STEPS)


def cpu_statements(facts: Facts) -> list[TextBlock]:
    """How much of a step operators take, threads, types and rates: what is known, and nothing else."""
    outside = max(0.0, 1 - facts.cpu.inside)
    values = {"inside": share(facts.cpu.inside), "outside": share(outside)}
    where = "steps" if facts.trace.steps.recorded else "recording"
    sentence = (
        f"Operators run in {{inside}} of the {where}; the rest ({{outside}}) is Python between them and whatever else the "
        "program does."
    )
    if facts.cpu.loading >= _WORTH_NAMING:
        values |= {"loading": share(facts.cpu.loading), "outside": share(max(0.0, outside - facts.cpu.loading))}
        rows = loader_rows(facts)
        single = any("SingleProcess" in facts.trace.name_of(event) for event in rows.tolist())
        how = "makes them itself (num_workers=0)" if single else "waits for its workers"
        sentence = (
            f"Operators run in {{inside}} of the {where}; in another {{loading}} the program fetches its next batch from "
            f"the data loader, which {how}; the rest ({{outside}}) is Python between them and whatever else the program "
            "does."
        )
    found = [TextBlock(sentence, values)]
    return [*found, *_threads(facts), *_types(facts), *_variance(facts)]


def _variance(facts: Facts) -> list[TextBlock]:
    """How much of the time is above the best of equal calls, with the operator in which most of it is."""
    cpu = facts.cpu
    if cpu.above_best < _ABOVE_BEST_FROM:
        return []
    data = cpu.operators
    worst = int(np.argmax(data["time"] - data["calls"] * data["best"]))
    return [
        TextBlock(
            "Equal calls take unequal time: {above} of the operators' self time is above what the same calls take at their "
            "best ({operator}: {best} at best, {mean} in the mean). Often threads wait for cores that other programs use: "
            "an idle machine, or OMP_NUM_THREADS=1, tells.",
            {
                "above": share(cpu.above_best),
                "operator": text(str(data["operator"][worst])),
                "best": time(float(data["best"][worst])),
                "mean": time(float(data["time"][worst] / data["calls"][worst])),
            },
        )
    ]


def _threads(facts: Facts) -> list[TextBlock]:
    recorded = from_metadata(facts.trace.metadata)
    environment: dict[str, Any] = recorded.environment if recorded else {}
    threads, cores = _whole(environment, "torch", "threads"), _whole(environment, "host", "cores_allowed")
    if threads <= 0:
        return []
    processor = _part(environment, "host").get("processor")
    on = f" on {{cores}} {'core' if cores == 1 else 'cores'}" if cores > 0 else ""
    named = " ({processor})" if isinstance(processor, str) and processor else ""
    return [
        TextBlock(
            f"Each operator may use {{threads}} {'thread' if threads == 1 else 'threads'}{on}{named}.",
            {"threads": count(threads), "cores": count(cores), "processor": text(str(processor)[:80])},
        )
    ]


def _types(facts: Facts) -> list[TextBlock]:
    """The types of the matrix work and the best rate among its larger operators."""
    data = facts.cpu.operators
    matrix = data.take(data["matrix"] & (data["dtype"] != ""))
    part = float(matrix["share"].sum())
    if part < _MATRIX_FROM:
        return []
    by_type = {kind: float(matrix["share"][matrix["dtype"] == kind].sum()) for kind in set(matrix["dtype"].tolist())}
    main = max(by_type, key=lambda kind: by_type[kind])
    values: dict[str, Quantity] = {"share": share(part), "type": text(main), "main": share(by_type[main] / part)}
    known = np.flatnonzero(~np.isnan(matrix["flop_rate"]))
    rate = ""
    if len(known):
        values["rate"] = flop_rate(float(matrix["flop_rate"][known[0]]))
        values["operator"] = text(str(matrix["operator"][known[0]]))
        rate = "; the longest of it, {operator}, computes {rate} in the mean"
    double = " Single precision moves half of the bytes." if main == "float64" else ""
    part_of_it = "{main} of it" if by_type[main] < _NEARLY_ALL * part else "all of it"
    return [
        TextBlock(
            f"Matrix work takes {{share}} of the operators' self time, {part_of_it} in {{type}}{rate}.{double}", values
        )
    ]


def _line(facts: Facts, event: int) -> str:
    at = locate(facts, event)
    return f"{at.file}:{at.line}" if at is not None and at.file else ""


def _texts(values: list[str]) -> np.ndarray:
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def _part(environment: dict[str, Any], name: str) -> dict[str, Any]:
    part = environment.get(name)
    return part if isinstance(part, dict) else {}


def _whole(environment: dict[str, Any], part: str, name: str) -> int:
    value = _part(environment, part).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
