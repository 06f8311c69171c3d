"""The job without what a late rank does more: that rank's step replayed with and without it.

In a job that goes in step, every rank's step is that of the late one. So what the job gains is what the late rank's own
step gains. What it does while its device is busy anyway gives nothing. Where the step was timed without a profiler, the
late rank's work is scaled first, so that its replay takes as long: what recording costs differs from host to host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.distributed.by_itself import by_itself
from lanewise.measure.distributed.late_ranks import Excess, Job, Late
from lanewise.measure.distributed.own.own_context import Context, holds_host, in_one_piece
from lanewise.measure.distributed.own.own_device_work import device_contexts
from lanewise.measure.distributed.own.own_work import OwnWork, own_work
from lanewise.measure.distributed.together.matched_communications import Matched
from lanewise.measure.distributed.together.next_latest import gain_of_job
from lanewise.measure.distributed.together.replayed_together import RanksTogether
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import FAR_SLOWER, LITTLE, TYPICAL, USUAL_CLOCKS, slower

__all__ = ["Delay", "Timed", "as_timed", "delay_of", "delays_of"]

_TOGETHER = 8
"""Stages of a pipeline that are replayed together: the late one and those next to it."""

_HOSTS = (0.5, 2.0)
"""What recording costs is known to within these factors of a host's work; but it is never slower than while recorded."""

_SPEEDS = 1.1
"""Steps that differ by more than this factor, a quarter of them from half, were done at two speeds of the host."""

_LOOPS_SLOWER = 3.5
"""While a host is slow for a while, loops of short calls become longer by so many times the share by which the rest does,
1.7 times as long where that takes 1.2: the median over eleven jobs on H200s' hosts with such a loop or one of Python (2 to
5)."""


@dataclass(frozen=True, slots=True)
class Delay:
    """What a late rank costs its job.

    Attributes:
        step_ns: the step of that rank by itself, ns. gain_ns: how much of the job's step goes with what the rank does more.
        host_scale: how many times as long its host takes as was computed, by the timed step.
        alone_ns: what the rank gains by itself; the job gains less where another one is then the last.
        held_scale: the same as `host_scale` for copies that hold the host, which recording makes no longer.
        loop_scale: the same for loops of short calls, which a slow host makes longer than the rest.
    """

    step_ns: float
    gain_ns: float
    host_scale: float = 1.0
    alone_ns: float = 0.0
    held_scale: float = 1.0
    loop_scale: float = 1.0

    def of(self, one: Excess) -> float:
        """By what a context's time is to be multiplied."""
        if one.context.on_device:
            return self.held_scale if holds_host(one.context) else 1.0
        if one.is_loop:
            return self.loop_scale
        return 1.0 if _stays(one) else self.host_scale


@dataclass(frozen=True, slots=True)
class Timed:
    """A job's step as it was timed without a profiler.

    Attributes:
        step_ns: the step. own_ns: what the late rank's host took of it, without its wait for the device; 0 if unknown.
        quick_ns: the same of the quicker steps, where the host went at two speeds.
        ahead: whether that host ran ahead of its device: the step then says only how long it takes at most.
        together: whether several hosts make up the step. It then says what recording cost all of them, and not how fast
            one of them was.
    """

    step_ns: float
    own_ns: float = 0.0
    quick_ns: float = 0.0
    ahead: bool = False
    together: bool = False


Stepping = Callable[[StepGraph, float], float]
"""The step of a job from the replay of its late rank, and from how many times as long the hosts of the others take; ns."""


def delay_of(
    core: Core,
    late: Late,
    host_factor: float,
    *,
    timed: Timed | None = None,
    moving: Mapping[int, float] | None = None,
    step: Stepping = lambda graph, _: simulate(graph).step_ns,
) -> Delay:
    """What a late rank costs its job.

    Args:
        core: the late rank. late: what it does more.
        host_factor: how much slower its host was while it was recorded than the others'.
        timed: the job's step without a profiler, if the late rank is to take as long.
        moving: what moving the data takes in its communication (`by_itself`).
        step: what its replay makes of the job's step; the step of that rank alone by default.
    """
    work = own_work(core)
    if not len(core.trace.device_work):
        # Without a device there is one line of work, and each of its parts counts.
        return Delay(float(np.median(work.time.sum(axis=1))), late.more_ns)
    rank = by_itself(core, moving)
    graph = rank.graph
    share = {context: one.more_ns / one.mine_ns for one in late.excess for context in one.members}
    left, held = np.ones(len(graph)), np.zeros(len(graph), dtype=bool)
    contexts, of_own = device_contexts(core, graph.event[rank.own])
    left[rank.own] = np.array([1.0 - share.get(one, 0.0) for one in contexts])[of_own]
    held[rank.own] = np.array([holds_host(one) for one in contexts], dtype=bool)[of_own]
    # What is the rank's own is as long as it is said to be, and the rest is what is left of the recorded time: the graph
    # thinks less of many recorded frames, and more of a loop of short calls.
    removed = _of_nodes(core, work, share)
    others = 1.0 - np.minimum(_of_nodes(core, work, share, recorded=True) / np.maximum(core.graph.gap, 1.0), 1.0)
    held_up = np.minimum(_of_held(core, graph.event[rank.own], 1.0 - left[rank.own]), graph.gap)
    even = np.where(graph.on_host, np.maximum(graph.gap * others - held_up, 0.0) / host_factor, graph.gap)
    removed += held_up
    now = replace(graph, gap=even + removed)
    stays = _fixed(work) | {context for one in late.excess if _stays(one) for context in one.members}
    fixed = np.minimum(_of_nodes(core, work, dict.fromkeys(stays, 1.0)), now.gap)
    in_loops = {context for one in late.excess if one.is_loop for context in one.members}
    loops = np.minimum(_of_nodes(core, work, dict.fromkeys(in_loops, 1.0)), now.gap - fixed)
    # What counts of a loop is what it takes in the quicker of the recorded steps: so do the quicker of the timed ones.
    spells = timed is not None and 0 < timed.quick_ns < timed.own_ns and _at_two_speeds(work, in_loops)
    if timed is not None and not spells:
        timed = replace(timed, quick_ns=timed.own_ns)

    def at(factor: float) -> float:
        graph = slower(now, factor, fixed=fixed, held=held)
        # Where the device makes up the step, the step says nothing of the host; what the host took of it does.
        return _own_of_host(graph) if timed is not None and timed.own_ns else step(graph, factor)

    recorded = float((core.graph.gap - fixed)[graph.on_host].sum() / max((now.gap - fixed)[graph.on_host].sum(), 1.0))
    scale = loop_scale = _as_long_as(timed, at, recorded) if timed is not None else 1.0
    if timed is not None and spells:
        loop_ns = scale * float(loops.sum()) / graph.steps
        rest_ns = max(timed.quick_ns - float(fixed[graph.on_host].sum()) / graph.steps - loop_ns, 0.0)
        slow = (timed.own_ns - timed.quick_ns) / (rest_ns + _LOOPS_SLOWER * loop_ns)
        scale, loop_scale = scale * (1.0 + slow), scale * (1.0 + _LOOPS_SLOWER * slow)
    now = slower(now, scale, fixed=fixed, held=held)
    now = replace(now, gap=now.gap + loops * (loop_scale - scale))
    # What goes is as large a part of each stretch as before, of what is fixed and of what is scaled.
    gone = np.minimum(_of_nodes(core, work, _of(share, stays)), removed)
    looped = np.minimum(_of_nodes(core, work, _of(share, in_loops)), removed - gone)
    gone += looped * loop_scale + (removed - gone - looped) * scale
    without = now.gap - np.where(graph.on_host, gone, 0.0)
    before = step(now, scale)
    after = step(replace(now, gap=np.maximum(without, 0.0), duration=now.duration * left), scale)
    of_all = timed is not None and timed.together
    held_scale = 1.0 if of_all else scale
    return Delay(before, max(0.0, before - after), scale, held_scale=held_scale, loop_scale=loop_scale)


def _of(share: Mapping[Context, float], which: set[Context]) -> dict[Context, float]:
    return {context: part for context, part in share.items() if context in which}


def _at_two_speeds(work: OwnWork, which: set[Context]) -> bool:
    """Whether the host went at two speeds in the recorded steps, by what some contexts took in each."""
    columns = [at for at, context in enumerate(work.contexts) if context in which]
    quick, slow = np.quantile(work.time[:, columns].sum(axis=1), (TYPICAL, 1.0 - TYPICAL))
    return bool(slow > _SPEEDS * quick)


def _as_long_as(timed: Timed, at: Callable[[float], float], recorded: float) -> float:
    """The factor at which the host takes as long as was timed; 1 where it is the device that takes as long, and where no
    host within `_HOSTS`, or as slow as while it was recorded, explains that."""
    target = timed.quick_ns or timed.step_ns
    low, high = _HOSTS[0], 1.0 if timed.ahead else max(_HOSTS[1], recorded)
    if not at(low) < target < at(high):
        return 1.0
    now = at(1.0)
    if now < target < USUAL_CLOCKS * now and at(FAR_SLOWER) < (1 + LITTLE) * now:
        return 1.0
    while high / low > 1.005:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle) < target else (low, middle)
    return (low * high) ** 0.5


def _own_of_host(graph: StepGraph) -> float:
    """What the host takes of a step, ns, as it is timed: from the moment on at which the device is done with the step
    before."""
    replayed = simulate(graph)
    marks = np.flatnonzero(graph.on_host & (graph.event < 0))[: graph.steps + 1]
    done = np.full(graph.steps, replayed.round_start)
    device = np.flatnonzero(~graph.on_host)
    np.maximum.at(done, np.clip(graph.step[device] + 1, 0, graph.steps - 1), replayed.end[device])
    begin = np.maximum(replayed.end[marks[:-1]], np.maximum.accumulate(done)[: len(marks) - 1])
    return float(np.median(np.maximum(replayed.end[marks[1:]] - begin, 0.0)))


def delays_of(job: Job, together: Matched, core_of: Callable[[int], Core]) -> tuple[Job, list[Delay]]:
    """The job as its timed step says that it is, and what each of its late ranks costs it.

    Args:
        job, together: its ranks, and what they did together. core_of: the rank of a row of the job.
    """
    delays: list[Delay] = []
    for late in job.late:
        factor, core = float(job.host_factor[late.index]), core_of(late.index)
        moving = together.moving(late.index)
        # The latest rank makes up the timed step, others with it do not.
        timed = _timed(job, late.index) if job.timed and not delays else None
        if job.alike:
            delays.append(delay_of(core, late, factor, timed=timed, moving=moving))
            continue
        rows = _with(job, together, late.index)
        ranks = [(row, by_itself(core if row == late.index else core_of(row), together.moving(row))) for row in rows]
        step = RanksTogether.of(ranks, [*together.collectives, *together.transfers]).step
        # Their hosts are as they are: what the stages of a pipeline do cannot be compared. A stage alone does not make up
        # the timed step, as it waits by design.
        timed = timed if len(rows) > 1 else None
        delays.append(delay_of(core, late, 1.0, timed=timed, moving=moving, step=step))
    if delays:
        job = as_timed(job, delays[0])
    if not job.alike:
        # Replayed together, they have waited for the next one already.
        return job, [replace(delay, alone_ns=delay.gain_ns) for delay in delays]
    gains = {late.index: delay.gain_ns for late, delay in zip(job.late, delays, strict=True)}
    return job, [
        replace(delay, gain_ns=gain_of_job(job, late.index, gains, device_ns=_on_device(late)), alone_ns=delay.gain_ns)
        for late, delay in zip(job.late, delays, strict=True)
    ]


def _timed(job: Job, row: int) -> Timed:
    rank = job.ranks[row]
    # The hosts of a pipeline wait for each other: how long one is kept in a step is not its own work.
    own = rank.own_timed_ns if job.alike else []
    quick, usual = np.quantile(own, (TYPICAL, 0.5)).tolist() if own else (0.0, 0.0)
    quick = quick if usual > _SPEEDS * quick else usual
    return Timed(job.step_ns, usual, quick, rank.ahead, together=not job.alike)


def _on_device(late: Late) -> float:
    """What its device does more while its host goes on, ns."""
    return sum(one.more_ns for one in late.excess if one.context.on_device and not holds_host(one.context))


def _with(job: Job, together: Matched, row: int) -> list[int]:
    """Ranks over the same steps that exchange data with one, or with such: itself, then the nearest."""
    near: defaultdict[int, list[int]] = defaultdict(list)
    for pair in together.transfers:
        (one, _), (other, _) = pair
        near[one].append(other)
        near[other].append(one)
    found = [row]
    for one in found:
        found += dict.fromkeys(
            other for other in near[one] if other not in found and job.ranks[other].steps == job.ranks[row].steps
        )
        if len(found) >= _TOGETHER:
            break
    return found[:_TOGETHER]


def as_timed(job: Job, delay: Delay) -> Job:
    """The job with its host work as its timed step says that it is: what the late ranks do more, and what all do.

    Args:
        job: its ranks. delay: of the latest one.
    """
    scale = delay.host_scale
    if scale == 1.0:
        return job
    late: list[Late] = []
    more, host = job.more_ns.copy(), job.host_ns * scale
    for one in job.late:
        excess = [_times(each, delay.of(each)) for each in one.excess]
        more[one.index] = sum(each.more_ns for each in excess)
        of_host = [(old, new) for old, new in zip(one.excess, excess, strict=True) if not old.context.on_device]
        host[one.index] += sum(new.more_ns - old.more_ns * scale for old, new in of_host)
        late.append(Late(one.index, float(more[one.index]), excess))
    return replace(job, late=late, more_ns=more, host_ns=host)


def _times(one: Excess, factor: float) -> Excess:
    return replace(one, mine_ns=one.mine_ns * factor, others_ns=one.others_ns * factor, more_ns=one.more_ns * factor)


def _fixed(work: OwnWork) -> set[Context]:
    each = zip(work.contexts, np.median(work.time, axis=0).tolist(), work.count.mean(axis=0).tolist(), strict=True)
    return {context for context, time, count in each if in_one_piece(context, time, count)}


def _stays(one: Excess) -> bool:
    """Whether what a rank does more in a context takes as long whatever recording costs."""
    # Without more rows than on the other ranks it is code that has none.
    alone = one.mine_count <= one.others_count and in_one_piece(one.context, one.more_ns, 1.0)
    return alone or in_one_piece(one.context, one.mine_ns, one.mine_count)


def _of_held(core: Core, event: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Host time of each node that goes with device work, ns: of calls that hold the host until it is over, as copies from
    pageable memory do.

    Args:
        core: the rank. event: device operations. gone: which share of each goes.
    """
    graph, trace = core.graph, core.trace
    call = trace.links.launch_of(event)
    held = (call >= 0) & (gone > 0) & core.host.waiting[np.maximum(call, 0)]
    share = np.zeros(len(trace))
    share[call[held]] = gone[held]
    result = np.zeros(len(graph))
    nodes = np.flatnonzero(graph.on_host & (graph.event >= 0))
    result[nodes] = share[graph.event[nodes]] * trace.duration[graph.event[nodes]]
    return result


def _of_nodes(core: Core, work: OwnWork, share: Mapping[Context, float], *, recorded: bool = False) -> np.ndarray:
    """Host time of each node that goes, ns: without the profiler, or as recorded."""
    graph = core.graph
    gone = np.array([share.get(context, 0.0) for context in work.contexts])
    result = np.zeros(len(graph))
    for pieces in work.pieces:
        nodes = np.flatnonzero(graph.lane == pieces.line)
        at = np.searchsorted(graph.begin[nodes], pieces.start, side="right") - 1
        inside = at >= 0
        spent = pieces.length if recorded else pieces.spent
        np.add.at(result, nodes[at[inside]], (spent * gone[pieces.context])[inside])
    return result
