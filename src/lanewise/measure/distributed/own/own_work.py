"""What a rank works on by itself in a step, without the profiler and without waiting: host and device time by context.

A context is where time goes, named so that it is the same on every rank: an operator or call, a Python function, the
stretch between two operators, a loader, a kernel with its launch configuration, a kind of copy. What recording cost is
taken off each context by what was recorded in it (`lanewise.replay.undistort`). Waits are no work: calls that wait for
the device, and the host sitting between operators until a collective on the CPU ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.distributed.own.own_device_work import device_work
from lanewise.measure.distributed.own.own_host_work import host_work

if TYPE_CHECKING:
    from lanewise.measure.core import Core
    from lanewise.measure.distributed.own.own_context import Context
    from lanewise.measure.distributed.own.own_host_work import Pieces

__all__ = ["OwnWork", "own_work"]


@dataclass(frozen=True, eq=False)
class OwnWork:
    """Own work of a rank in the steady run.

    Attributes:
        contexts: what the columns are. time: ns, shape (steps, contexts). count: rows in it, the same shape.
        shared: whether all of a context's kernels ran beside a collective, whose kernel holds a part of the device, bool,
            shape (contexts,): how long they take by themselves is then not known.
        pieces: where the host's time lies: line, start, context, ns, one entry per stretch.
        called_in: of calls that mostly lie inside an operator, the outermost one.
    """

    contexts: list[Context]
    time: np.ndarray
    count: np.ndarray
    shared: np.ndarray
    pieces: list[Pieces]
    called_in: dict[Context, str]


def own_work(core: Core) -> OwnWork:
    """Own work of a rank, by step of the steady run and by context."""
    contexts: dict[Context, int] = {}
    steps = core.graph.steps
    pieces, rows = host_work(core, contexts)
    device, shared = device_work(core, contexts)
    time = np.zeros((steps, len(contexts)))
    count = np.zeros((steps, len(contexts)))
    for step, column, spent, number in (*rows, *device):
        np.add.at(time, (step, column), spent)
        np.add.at(count, (step, column), number)
    shares = np.isin(np.arange(len(contexts)), shared)
    return OwnWork(list(contexts), time, count, shares, pieces, _called_in(core, list(contexts), pieces))


def _called_in(core: Core, contexts: list[Context], pieces: list[Pieces]) -> dict[Context, str]:
    """The outermost operator that most stretches of a context are in; none where most are in none."""
    if not pieces:
        return {}
    context, outer = (np.concatenate([getattr(one, name) for one in pieces]) for name in ("context", "outer"))
    names = core.trace.names
    each, number = np.unique(context * (len(names) + 1) + outer + 1, return_counts=True)
    # Of each context the last one is the most frequent.
    usual = dict(divmod(pair, len(names) + 1) for pair in each[np.argsort(number, kind="stable")].tolist())
    return {contexts[at]: str(names[name - 1]) for at, name in usual.items() if name}
