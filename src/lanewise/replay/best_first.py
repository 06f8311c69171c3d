"""Which changes give most: each alone, then the best first and the others on what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.replay.apply import apply
from lanewise.replay.change import Change
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import slower

__all__ = ["RESIDUAL", "Effect", "Wish", "best_first"]

# What replaying leaves unexplained, as a share of the step: how exactly a step without any change is known.
RESIDUAL = 0.02


@dataclass(frozen=True, eq=False)
class Wish:
    """A change that somebody might make.

    Attributes:
        change: the edit.
        spread: relative uncertainty of what it does: 0.15 where work simply goes, more where new work is estimated.
        general: a remedy for anything (a graph, compiling), or a mere bound: made after those that mend something in
            particular.
    """

    change: Change
    spread: float = 0.15
    general: bool = False


@dataclass(frozen=True)
class Effect:
    """What a change gives, ns per step.

    Attributes:
        place: when it was made, from 0.
        alone: what it gives by itself.
        gain: what it gives after those made before it; the gains of all add up to the whole.
        low, high: 80 % interval of `gain`.
        leaves: the step after it.
    """

    place: int
    alone: float
    gain: float
    low: float
    high: float
    leaves: float


def best_first(
    graph: StepGraph,
    replayed_ns: float,
    step_ns: float,
    wishes: Sequence[Wish],
    *,
    factor: float,
    least_ns: float = 0.0,
) -> list[Effect]:
    """Make all changes, the best first. Those that give less than `least_ns`, alone and in their turn, come last, and what
    the others leave is without them.

    Args:
        graph: the run without what recording cost.
        replayed_ns: a step of it, replayed.
        step_ns: what that takes; gains are given in proportion to it.
        wishes: the changes.
        factor: the host's work is known within this factor.
        least_ns: what is worth making, ns per step.

    Returns:
        One effect for each wish, in the order of `wishes`.
    """
    run = _Run(graph, wishes, replayed_ns)
    base = replayed_ns
    scale = step_ns / base if base else 1.0
    alone = [base - run.step_ns(at) for at in range(len(wishes))]
    turns = _turns(run, wishes, alone)
    worth = [at for at, gain in turns if max(gain, alone[at]) * scale >= least_ns]
    bands = [_Run(slower(graph, by), wishes) for by in (1 / factor, factor)] if factor > 1 else []
    effects: dict[int, Effect] = {}
    made: list[int] = []
    now = base
    for at in worth:
        before = tuple(made)
        made.append(at)
        gain = min(max(now - run.step_ns(*made), 0.0), now)
        near = [band.step_ns(*before) - band.step_ns(*made) for band in bands]
        own = np.hypot(wishes[at].spread * gain, RESIDUAL * base if gain else 0.0)
        low = gain - np.hypot(own, max(0.0, gain - min([gain, *near])))
        high = gain + np.hypot(own, max(0.0, max([gain, *near]) - gain))
        now -= gain
        effects[at] = Effect(
            place=len(effects),
            alone=max(0.0, alone[at]) * scale,
            gain=gain * scale,
            low=float(np.clip(low, 0.0, gain)) * scale,
            high=float(np.clip(high, gain, gain + now)) * scale,
            leaves=now * scale,
        )
    for at, gain in turns:
        if at not in effects:
            little = gain * scale
            effects[at] = Effect(len(effects), max(0.0, alone[at]) * scale, little, 0.0, little, now * scale)
    return [effects[at] for at in range(len(wishes))]


def _turns(run: _Run, wishes: Sequence[Wish], alone: Sequence[float]) -> list[tuple[int, float]]:
    """The wishes in the order in which each gives most, and what it gives in its turn."""
    waiting = list(range(len(wishes)))
    turns: list[tuple[int, float]] = []
    now = run.step_ns()
    while waiting:
        made = [at for at, _ in turns]
        tier = [at for at in waiting if not wishes[at].general] or waiting
        after = {at: alone[at] if not turns else now - run.step_ns(*made, at) for at in tier}
        best = max(tier, key=lambda at: (after[at], alone[at], -at))
        gain = min(max(after[best], 0.0), now)
        now -= gain
        turns.append((best, gain))
        waiting.remove(best)
    return turns


class _Run:
    """A graph with some of the changes made: each set of them is replayed once."""

    def __init__(self, graph: StepGraph, wishes: Sequence[Wish], replayed_ns: float | None = None) -> None:
        self._graph = graph
        self._wishes = wishes
        self._known: dict[tuple[int, ...], float] = {} if replayed_ns is None else {(): replayed_ns}

    def step_ns(self, *made: int) -> float:
        """The step with these changes made, in this order."""
        if made not in self._known:
            change = sum((self._wishes[at].change for at in made), Change())
            graph = apply(self._graph, change) if made else self._graph
            self._known[made] = simulate(graph).step_ns
        return self._known[made]
