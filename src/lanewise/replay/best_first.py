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
    graph: StepGraph, step_ns: float, wishes: Sequence[Wish], *, factor: float, least_ns: float = 0.0
) -> list[Effect]:
    """Make all changes, the best first. Those that give less than `least_ns`, alone and in their turn, come last, and what
    the others leave is without them.

    Args:
        graph: the run without what recording cost.
        step_ns: what a step of it takes; gains are given in proportion to it.
        wishes: the changes.
        factor: the host's work is known within this factor.
        least_ns: what is worth making, ns per step.

    Returns:
        One effect for each wish, in the order of `wishes`.
    """
    base = simulate(graph).step_ns
    scale = step_ns / base if base else 1.0
    alone = [base - _step(graph, wish.change) for wish in wishes]
    turns = _turns(graph, base, wishes, alone)
    worth = [at for at, gain in turns if max(gain, alone[at]) * scale >= least_ns]
    bands = [_Band(slower(graph, 1 / factor)), _Band(slower(graph, factor))] if factor > 1 else []
    effects: dict[int, Effect] = {}
    made, now = Change(), base
    for at in worth:
        made = made + wishes[at].change
        gain = min(max(now - _step(graph, made), 0.0), now)
        near = [band.gain(made) for band in bands]
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


def _turns(graph: StepGraph, base: float, wishes: Sequence[Wish], alone: Sequence[float]) -> list[tuple[int, float]]:
    """The wishes in the order in which each gives most, and what it gives in its turn."""
    waiting = list(range(len(wishes)))
    turns: list[tuple[int, float]] = []
    made, now = Change(), base
    while waiting:
        tier = [at for at in waiting if not wishes[at].general] or waiting
        after = {at: alone[at] if not turns else now - _step(graph, made + wishes[at].change) for at in tier}
        best = max(tier, key=lambda at: (after[at], alone[at], -at))
        gain = min(max(after[best], 0.0), now)
        made, now = made + wishes[best].change, now - gain
        turns.append((best, gain))
        waiting.remove(best)
    return turns


def _step(graph: StepGraph, change: Change) -> float:
    return simulate(apply(graph, change)).step_ns


class _Band:
    """The same changes, made where the host is quicker or slower than computed."""

    def __init__(self, graph: StepGraph) -> None:
        self._graph = graph
        self._now = simulate(graph).step_ns

    def gain(self, made: Change) -> float:
        """What the last of the changes made so far gives here."""
        after = _step(self._graph, made)
        gain, self._now = self._now - after, after
        return gain
