"""The few sentences of the measures that a report carries: each only where it says something of this run."""

from __future__ import annotations

from lanewise.diagnose.sections.cpu import cpu_statements
from lanewise.diagnose.sections.memory import peak_statement
from lanewise.diagnose.sections.overlap import hidden_statement
from lanewise.diagnose.sections.queues import pressure_statement
from lanewise.diagnose.sections.roofline import reached, reached_statement
from lanewise.measure.facts import Facts
from lanewise.report.model import TextBlock

__all__ = ["report_statements"]

# Below this share of the device time the mean says little about the run.
_COVERED_FROM = 0.5

# Copies and messages below this share of the step are not worth hiding.
_MOVED_FROM = 0.05


def report_statements(facts: Facts) -> list[TextBlock]:
    """What operators reach, what hides what, back-pressure, the memory's peak; on the CPU what the time goes to."""
    if facts.device_records != "some":
        return cpu_statements(facts) if facts.on_cpu and facts.cpu.operators.height else []
    found: list[TextBlock | None] = []
    # Without shapes or peaks nothing comes of it: do not measure it for nothing.
    achieved = reached(facts) if facts.health.shapes and facts.device.peak else None
    if achieved is not None and achieved[1] >= _COVERED_FROM:
        found.append(reached_statement(facts))
    copies, communication = (facts.regime.shares.get(c, 0.0) >= _MOVED_FROM for c in ("transfer", "communication"))
    if copies or communication:
        found.append(hidden_statement(facts.overlap, copies=copies, communication=communication))
    if facts.regime.name == "compute":
        found.append(pressure_statement(facts.queue))
    if facts.memory is not None:
        found.append(peak_statement(facts.memory))
    return [statement for statement in found if statement is not None]
