"""One rank of a job in a few kilobytes: what is compared with the other ranks, so that no trace is needed any more."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Sequence

import msgspec
import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.distributed.by_itself import by_itself
from lanewise.measure.distributed.communications import Communication, communications
from lanewise.measure.distributed.own.own_context import Context, in_one_piece
from lanewise.measure.distributed.own.own_work import own_work
from lanewise.measure.distributed.ranks import rank_of, world_in
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import TYPICAL
from lanewise.trace.metadata import Recorded, from_metadata
from lanewise.trace.reading_losses import Reading

__all__ = ["ContextTime", "RankSummary", "summarise", "with_shared"]


_AHEAD = ("device", "mean")
"""Methods by which a step is timed where the host runs ahead (`StepTimes`)."""


_MANY_LOST = 0.01
"""From this share on, rows that could not be read make totals too low."""


class ContextTime(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Own time of a rank in one context.

    Attributes:
        context: where.
        time_ns: of each step of the run, without the profiler.
        count: rows in a step, on average.
        shared: whether its kernels all ran beside a collective: what they take by themselves is not known.
        called_in: operator that it is mostly called in, "" if in none.
    """

    context: Context
    time_ns: Sequence[int]
    count: float
    shared: bool = False
    called_in: str = ""

    @property
    def typical_ns(self) -> float:
        """What a step of it takes: the median, but of what the host does in many pieces the quicker steps' (`TYPICAL`), as
        the replay has it: a host that is slow for a while is slower in all of it. Sleep and a loop of Python that calls
        nothing are as long as they are."""
        ordered = sorted(self.time_ns)
        if not ordered:
            return 0.0
        alone = self.context.on_device or in_one_piece(self.context, ordered[len(ordered) // 2], self.count)
        at = (0.5 if alone else TYPICAL) * (len(ordered) - 1)
        low = int(at)
        return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


class RankSummary(msgspec.Struct, frozen=True):
    """One rank.

    Attributes:
        rank: -1 if the trace does not say. world: ranks of the job, 0 if unknown. node: number of its machine, -1 if
            unknown.
        devices: in its machine, as far as the process sees them. link: rate of the links between them, each way, bytes/s;
            0 if unknown.
        base_ns: wall-clock ns of time 0 of its trace, 0 if unknown. began_ns: the same of its first step.
        file: name of the trace. digest: of its content.
        device: name of the accelerator, "" without one.
        steps: numbers of the steps compared.
        timed_ns: step without a profiler as the recorder timed it, the waits for others included; 0 if it did not.
        own_timed_ns: of each step timed, what the host took that did not wait for the device; empty if unknown.
        behind_ns: how long after each of these the device was done. That is a wait for others in all ranks but the last.
        ahead: whether the host ran ahead of its device while its steps were timed.
        recorded_ns: the same while it was recorded.
        alone_ns: the step without profiler if no collective took any time: what this rank needs by itself.
        contexts: its own work.
        communications: what it exchanged with others, as recorded.
        notes: what is wrong with the file, as what follows "the file".
    """

    rank: int
    world: int
    file: str
    digest: str
    device: str
    steps: list[int]
    timed_ns: float
    recorded_ns: float
    alone_ns: float
    contexts: list[ContextTime]
    communications: list[Communication]
    notes: list[str] = []
    node: int = -1
    devices: int = 0
    link: float = 0.0
    base_ns: int = 0
    began_ns: int = 0
    own_timed_ns: list[float] = []
    behind_ns: list[float] = []
    ahead: bool = False


def with_shared(summary: RankSummary, seen: dict[Context, Context]) -> RankSummary:
    """The same, packed: the contexts that other ranks have, too, are held once, and times side by side. They are most of
    what a summary takes."""
    contexts = [
        ContextTime(
            seen.setdefault(one.context, one.context),
            array("q", one.time_ns),
            one.count,
            one.shared,
            sys.intern(one.called_in),
        )
        for one in summary.contexts
    ]
    return msgspec.structs.replace(summary, contexts=contexts)


def summarise(core: Core) -> RankSummary:
    """The summary of one rank."""
    trace, graph = core.trace, core.graph
    work = own_work(core)
    recorded = from_metadata(trace.metadata)
    columns = zip(
        work.contexts,
        np.rint(work.time.T).astype(np.int64).tolist(),
        np.round(work.count.mean(axis=0), 2).tolist(),
        work.shared.tolist(),
        strict=True,
    )
    contexts = [
        ContextTime(context, times, count, shared, work.called_in.get(context, ""))
        for context, times, count, shared in columns
    ]
    first = _first_step(core)
    own_timed, behind = _timed(recorded)
    numbers = trace.steps.number[first : first + graph.steps].tolist() if trace.steps.recorded else []
    return RankSummary(
        rank=rank_of(core),
        world=world_in(trace.metadata),
        file=os.path.basename(trace.reading.source),
        digest=trace.reading.digest,
        device=core.device.name if core.classes.device else "",
        steps=[int(number) for number in numbers],
        timed_ns=float(core.unprofiled_ns or 0),
        recorded_ns=float(np.diff(_bounds(core, first)).mean()),
        alone_ns=alone(core),
        contexts=contexts,
        communications=communications(core),
        node=recorded.node if recorded is not None and recorded.node is not None else -1,
        devices=_devices(core),
        link=core.device.peak.link if core.device.peak is not None else 0.0,
        base_ns=trace.base_ns,
        began_ns=trace.base_ns + int(trace.steps.start[0]) if trace.base_ns else 0,
        own_timed_ns=own_timed,
        behind_ns=behind,
        notes=_notes(core.trace.reading),
        ahead=recorded is not None and recorded.unprofiled is not None and recorded.unprofiled.method in _AHEAD,
    )


def _notes(reading: Reading) -> list[str]:
    if reading.truncated:
        return ["is cut off, and its last steps are missing"]
    if reading.rows_lost > _MANY_LOST * (reading.rows + reading.rows_lost):
        return ["has rows that cannot be read, and what it does seems too short"]
    return []


def _timed(recorded: Recorded | None) -> tuple[list[float], list[float]]:
    """What the host took by itself in each timed step, and how long the device was behind after it, ns.

    A step begins with the wait for what the device still had to do at the end of the one before.
    """
    times = recorded.unprofiled if recorded is not None else None
    if times is None or len(times.behind_us) != len(times.times_us):
        return [], []
    own = [max(0.0, took - waits) * 1e3 for took, waits in zip(times.times_us[1:], times.behind_us[:-1], strict=True)]
    return own, [one * 1e3 for one in times.behind_us[1:]]


def _devices(core: Core) -> int:
    listed = core.trace.metadata.get("deviceProperties")
    return len(listed) if isinstance(listed, list) else 0


def alone(core: Core) -> float:
    """The step of a rank without the profiler if collectives took no time, ns."""
    if not len(core.trace.device_work):
        return float(own_work(core).time.sum(axis=1).mean())
    return simulate(by_itself(core).graph).step_ns


def _first_step(core: Core) -> int:
    host = np.flatnonzero(core.graph.on_host)
    begin = core.graph.begin[host].min() if len(host) else core.trace.steps.start[0]
    return max(0, int(np.searchsorted(core.trace.steps.start, begin, side="right")) - 1)


def _bounds(core: Core, first: int) -> np.ndarray:
    steps, count = core.trace.steps, core.graph.steps
    return np.concatenate((steps.start[first : first + count], [steps.end[min(first + count, len(steps)) - 1]]))
