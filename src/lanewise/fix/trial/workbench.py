"""What every part of one `optimize` works with: the program, its state, the clock, the gates. Made once, never changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.gate.speed.physics import floor_us
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call
from lanewise.fix.time_budget import Budget
from lanewise.fix.trial.shares import gate_s, reserve_s
from lanewise.fix.work.worklist import WorkList, work_of

__all__ = ["LONGEST_TIMING_S", "Bench", "make_bench"]

LONGEST_TIMING_S = 6.0
"""For one candidate, seconds."""


@dataclass(frozen=True)
class Bench:
    """One program under test.

    Attributes:
        goal, allow: as asked of `optimize`. gate: of correctness. work: of one call. floor: least time of a call, us.
        call_s: what a call took here, seconds. records: whether the program is recorded before and after in the end.
    """

    subject: Subject
    state: State
    clock: Budget
    goal: str
    allow: Sequence[str]
    gate: Correctness
    work: WorkList
    floor: float
    call_s: float = 0.0
    records: bool = True

    def reserve_s(self, arms: int) -> float:
        """Seconds that are kept for what comes after the candidates, if so many ways to run the program are compared."""
        return reserve_s(self.clock.seconds, call_s=self.call_s, arms=arms, records=self.records)

    @property
    def each(self) -> bool:
        """Whether every call is waited for when it is timed. Steps of a training follow each other, whatever is asked."""
        return self.goal == "latency" and self.subject.kind == "inference"


def make_bench(
    subject: Subject, state: State, clock: Budget, *, goal: str, allow: Sequence[str], records: bool = True
) -> Bench:
    """Run the program a few times to learn how its results can be verified and what it computes."""
    clock.tell(f"{subject.name}: checking how its results can be verified")
    gate = Correctness(subject, state, seconds=gate_s(clock.seconds))
    work = work_of(subject, state)
    floor, call_s = floor_us(subject, work), _call_s(subject, state)
    return Bench(subject, state, clock, goal, list(allow), gate, work, floor, call_s, records)


def _call_s(subject: Subject, state: State) -> float:
    call = copy_call(subject.calls[0])
    try:
        subject.wait()
        began = time.monotonic()
        subject.run(call)
        subject.wait()
        return time.monotonic() - began
    finally:
        state.restore()
