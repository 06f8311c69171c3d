"""Idle time of the stages of a pipeline, against what its schedule leaves idle by itself.

A schedule that fills and drains the pipeline once in a step (GPipe, 1F1B) leaves p - 1 of m + p - 1 slots of each of p
stages idle, with m microbatches; interleaved, with v parts of the model on each rank, p - 1 of v m + p - 1 (Narayanan et
al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, section 2.2). What is idle
beyond that is waiting for the host, for transfers, or for a stage that has more to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lanewise.measure.distributed.late_ranks import Job
from lanewise.measure.distributed.together.matched_communications import Matched

__all__ = ["Pipeline", "pipelines_of"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline.

    Attributes:
        ranks: its stages in order, by number of the rank. microbatches: in a step. parts: of the model on each rank.
        ideal: share of the step that its schedule leaves idle if all stages take equally long.
        idle: share in which each stage does not work.
        step_ns: the step that this is a share of. timed: whether it was timed without the profiler.
    """

    ranks: list[int]
    microbatches: int
    parts: int
    ideal: float
    idle: list[float]
    step_ns: float
    timed: bool


def pipelines_of(job: Job, together: Matched) -> list[Pipeline]:
    """The pipelines of a job; none without transfers between ranks, or where these make no chain."""
    sent = _sent_per_step(job, together)
    found: list[Pipeline] = []
    for members in _connected(sent):
        forward = [sent[pair] for pair in pairwise(members) if pair in sent]
        if len(forward) < len(members) - 1:
            continue
        around = sent.get((members[-1], members[0]), 0.0) if len(members) > 2 else 0.0
        messages = float(np.median(forward))
        microbatches = round(messages - around)
        if microbatches < 1:
            continue
        parts = max(1, round(messages / microbatches))
        slots = parts * microbatches + len(members) - 1
        step = job.step_ns if job.timed else float(np.median([one.recorded_ns for one in job.ranks]))
        row = {one.rank: at for at, one in enumerate(job.ranks)}
        own = [float(job.device_ns[row[rank]] or job.host_ns[row[rank]]) for rank in members]
        idle = [max(0.0, 1.0 - one / step) if step else 0.0 for one in own]
        found.append(Pipeline(members, microbatches, parts, (len(members) - 1) / slots, idle, step, job.timed))
    return found


def _sent_per_step(job: Job, together: Matched) -> dict[tuple[int, int], float]:
    """Messages of a step by the ranks at their two ends, the median over the steps."""
    by_step: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    known = {one.rank for one in job.ranks}
    for send, receive in together.transfers:
        pair = send[1].source, receive[1].target
        if pair[0] in known and pair[1] in known:
            by_step[pair][send[1].step] += 1
    return {pair: float(np.median(list(steps.values()))) for pair, steps in by_step.items()}


def _connected(sent: dict[tuple[int, int], float]) -> list[list[int]]:
    """Ranks that send to each other, over others too, each group in order."""
    near: defaultdict[int, set[int]] = defaultdict(set)
    for source, target in sent:
        near[source].add(target)
        near[target].add(source)
    groups: list[list[int]] = []
    seen: set[int] = set()
    for rank in sorted(near):
        if rank in seen:
            continue
        group, open_ = {rank}, [rank]
        while open_:
            for other in near[open_.pop()] - group:
                group.add(other)
                open_.append(other)
        seen |= group
        groups.append(sorted(group))
    return groups
