"""Jobs of two ranks, built so that one of them comes last to every collective."""

from __future__ import annotations

from typing import Any

from lanewise.diagnose.registry import find_rule
from lanewise.diagnose.rule import Outcome
from lanewise.measure.facts import Facts
from tests.diagnose.outcomes import measured
from tests.support.builder import TraceBuilder


def rank(
    number: int,
    *,
    think: float = 10.0,
    waits: float = 5.0,
    collectives: int = 4,
    compute: float = 20.0,
    elements: int = 1_000_000,
    ready: bool = True,
    steps: int = 4,
    stretch: float = 1.0,
) -> Facts:
    """One rank: it thinks, computes, and joins a collective whose kernel lasts `waits`; all of its host takes `stretch`
    times as long."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            for _ in range(collectives):
                b.wait(think)
                with b.op("aten::mm", head=100 * stretch, tail=100 * stretch):
                    b.launch("gemm", duration=compute)
                b.collective(elements=elements, duration=waits, rank=number, stream="7" if ready else "20")
            # The next kernel is launched already while the last collective spins.
            with b.op("aten::add"):
                b.launch("add", duration=1)
            b.synchronize()
    return Facts(b.build())


def job(first: Facts, second: Facts) -> Facts:
    """Facts of the first rank with the second one as its peer."""
    return Facts(first.trace, peers=[second])


def checked(code: str, facts: Facts, **thresholds: Any) -> Outcome:
    """What a rule says about a rank and its peers."""
    return measured(facts, find_rule(code).check(facts, **thresholds))
