"""The queue in front of the device."""

from __future__ import annotations

from lanewise.diagnose.sections.section import Section, Source
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.launch.queues import Queue
from lanewise.report.evidence_columns import STEP, TIME, Headings
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, time

__all__ = ["pressure_statement", "queues_section"]

_STEPS: Headings = [
    STEP,
    TableColumn("mean", "count", "mean depth"),
    TableColumn("deepest", "count", "deepest"),
    TableColumn("empty", "share", "empty"),
]
_OVER_TIME: Headings = [TIME, TableColumn("depth", "count", "depth")]


def queues_section(facts: Facts) -> Section:
    """Operations launched and not done, per step and over time; whether a full queue held the host back."""
    queue = facts.queue
    if len(queue.time) == 0:
        return Section([TextBlock("The trace holds no launch with its device work.")], {})
    launches = TextBlock("99 % of the launch calls take {p99} or less.", {"p99": time(queue.launch_p99)})
    pressure = pressure_statement(queue) or TextBlock("Nothing shows that a full queue held the host back.")
    over_time = Columns({"time": queue.time, "depth": queue.depth})
    return Section(
        [launches, pressure],
        {
            "queues": Source("Operations launched and not done, by step", queue.per_step, _STEPS),
            "queues-over-time": Source("Depth of the queue over time", over_time, _OVER_TIME),
        },
    )


def pressure_statement(queue: Queue) -> TextBlock | None:
    """That the host waits for the device to take work; None where it does not."""
    if not queue.back_pressure:
        return None
    return TextBlock(
        "The host waits for room in the queue ({slow} launches, {time}; buffer full for {full}): the device is behind, "
        "launches are not the problem.",
        {"slow": count(queue.slow), "time": time(queue.slow_time), "full": time(queue.buffer_full)},
    )
