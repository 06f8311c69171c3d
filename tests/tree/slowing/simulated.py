"""A program whose contexts take as long as we say: what the native collector would have of it, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lanewise.tree.slowing.lookout import Lookout
from lanewise.tree.slowing.slowdown import Slowdown
from lanewise.tree.watching.collected import MODULE_SEPARATOR, CollectedKind

__all__ = ["NOISES", "Program", "followed"]


class Sums(NamedTuple):
    threads: list[tuple[int, bytes, bytes, bytes]]
    leaves: list[tuple[Any, ...]]
    ns_per_tick: float


class Program:
    """`main` calls modules, and each of them operators; a tick is a nanosecond."""

    def __init__(self, modules: int = 10, operators: int = 5) -> None:
        self.names = ["", "main thread"]
        self.sites = [(_main.__code__, 0)]
        self.parent, self.kind, self.name = [0, 0], [CollectedKind.ROOT, CollectedKind.FRAME], [1, 0]
        self.leaves: list[int] = []
        for module in range(modules):
            at = self.add(1, CollectedKind.MODULE, MODULE_SEPARATOR.join(("Net_0", f"layers.{module}", "Layer")))
            for operator in range(operators):
                self.leaves.append(self.add(at, CollectedKind.OPERATOR, f"aten::op{operator}"))

    def add(self, parent: int, kind: int, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        self.parent.append(parent)
        self.kind.append(kind)
        self.name.append(self.names.index(name))
        self.calls = np.zeros(len(self.parent), np.int64)
        self.ticks = np.zeros(len(self.parent), np.int64)
        self.waits = np.zeros(len(self.parent), np.int64)
        return len(self.parent) - 1

    def sums(self) -> Sums:
        return Sums([(0, self.calls.tobytes(), self.ticks.tobytes(), self.waits.tobytes())], [], 1.0)

    def contexts(self) -> Mapping[str, Any]:
        one = {
            "index": 0,
            "parent": np.array(self.parent, np.uint32).tobytes(),
            "kind": np.array(self.kind, np.uint8).tobytes(),
            "name": np.array(self.name, np.uint32).tobytes(),
            "forward": np.zeros(len(self.parent), np.uint64).tobytes(),
        }
        return {"threads": [one], "names": self.names, "sites": self.sites}


def _main() -> None:
    """Stands for the program's own function."""


def followed(
    program: Program, ns: np.ndarray, calls: np.ndarray | None = None, waits: np.ndarray | None = None
) -> list[Slowdown]:
    """What is found where the leaves take `ns` (steps, leaves), of which `waits` without a processor, looked at as watching
    would."""
    found: list[Slowdown] = []
    lookout = Lookout(program, lambda code: "train.py(3): train", found.append)
    at, done = 0, 0
    sums = np.cumsum(ns, axis=0)
    waited = np.cumsum(waits, axis=0) if waits is not None else None
    entered = np.cumsum(calls, axis=0) if calls is not None else None
    while at <= len(ns):
        if at:
            program.ticks[program.leaves] = sums[at - 1]
            if waited is not None:
                program.waits[program.leaves] = waited[at - 1]
            program.calls[program.leaves] = entered[at - 1] if entered is not None else at
        done = lookout.look(at, at)
        at = max(done, at + 1)
    return found


def _quiet(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    return 1 + 0.02 * random.standard_normal((steps, places))


def _noisy(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    return 1 + 0.05 * random.standard_normal((steps, places))


def _interrupted(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    late = np.where(random.random((steps, places)) < 0.01, 1 + random.pareto(1.5, (steps, places)), 1)
    return late * (1 + 0.03 * random.standard_normal((steps, places)))


def _moody(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    moods = np.exp(0.15 * random.standard_normal(steps // 500 + 1)).repeat(500)[:steps]
    return moods[:, None] * (1 + 0.03 * random.standard_normal((steps, places)))


def _periodic(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    times = 1 + 0.03 * random.standard_normal((steps, places))
    times[::50, : places // 2] *= 3
    return times


def _wandering(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    times = np.empty((steps, places))
    at = np.zeros(places)
    pushes = random.standard_normal((steps, places)) * 0.01 * np.sqrt(1 - 0.95**2)
    for step in range(steps):
        at = 0.95 * at + pushes[step]
        times[step] = at
    return 1 + times + 0.02 * random.standard_normal((steps, places))


def _contended(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    times = 1 + 0.03 * random.standard_normal((steps, places))
    rate = np.repeat(random.choice([0.0, 0.3, 1.5], steps // 700 + 1), 700)[:steps]
    # A step is as long as all places: an interruption of 40 % of a step hits one of them.
    for step, hits in enumerate(random.poisson(rate).tolist()):
        np.add.at(times[step], random.integers(0, places, hits), 0.4 * places)
    return times


def _uneven(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    stretches = steps // 1000 + 1
    busy = np.abs(random.standard_normal((stretches, 1))) * np.abs(
        1 + 0.4 * random.standard_normal((stretches, places))
    )
    busy[0] = 0  # while the reference is taken
    return (1 + 0.25 * busy).repeat(1000, axis=0)[:steps] * (1 + 0.03 * random.standard_normal((steps, places)))


NOISES: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "quiet": _quiet,
    "noisy": _noisy,
    "interrupted": _interrupted,
    "moody": _moody,
    "periodic": _periodic,
    "wandering": _wandering,
    "contended": _contended,
    "uneven": _uneven,
}
"""Times of places in steps, 1 on average: gaussian of 2 % and of 5 %; one step in a hundred held up by any amount; a
machine that changes its speed by 15 % every 500 steps; something every 50 steps; places that go up and down by 1 % for 20
steps; other programs that take the processor for 40 % of a step, often for hundreds of steps; others beside it that make
every place slower for 1,000 steps, some more than others."""
