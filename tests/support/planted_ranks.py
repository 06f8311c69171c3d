"""Summaries of ranks shifted: jobs of any size from one real rank, with what is planted in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import ContextTime, RankSummary

STEPS = 8
CAUSES = ("Python", "operators", "slower kernels", "more work", "copies", "data loading")


@dataclass(frozen=True)
class Planted:
    """What was planted."""

    rank: int
    cause: str
    ns: float


def healthy(models: Sequence[RankSummary], ranks: int, seed: np.random.Generator) -> list[RankSummary]:
    """A job of ranks that are copies of real ones, each with a host of its own speed and every context disturbed as on
    real hosts: 15 % on the host, 1 % on the device, and now and then much more."""
    return [_shifted(models[int(seed.integers(len(models)))], rank, ranks, seed) for rank in range(ranks)]


def _shifted(model: RankSummary, rank: int, world: int, seed: np.random.Generator) -> RankSummary:
    speed = float(np.exp(seed.normal(0.0, 0.2)))
    contexts: list[ContextTime] = []
    for one in model.contexts:
        if one.context.on_device:
            factor = np.exp(seed.normal(0.0, 0.01, STEPS))
        else:
            factor = speed * np.exp(seed.normal(0.0, 0.15) + seed.normal(0.0, 0.1, STEPS))
            factor = factor + 20.0 * (seed.random(STEPS) < 0.002)
        time = np.rint(one.typical_ns * factor).astype(int).tolist()
        contexts.append(msgspec.structs.replace(one, time_ns=time))
    return msgspec.structs.replace(
        model, rank=rank, world=world, file=f"rank{rank}.json.gz", digest=f"{rank}", contexts=contexts
    )


def plant(job: list[RankSummary], seed: np.random.Generator) -> tuple[list[RankSummary], Planted]:
    """The job with one rank that does 8 to 40 % of the step more, for one reason."""
    rank = int(seed.integers(len(job)))
    cause = CAUSES[int(seed.integers(len(CAUSES)))]
    ns = float(job[rank].alone_ns * seed.uniform(0.08, 0.4))
    late = msgspec.structs.replace(job[rank], contexts=_more(job[rank].contexts, cause, ns, seed))
    return [*job[:rank], late, *job[rank + 1 :]], Planted(rank, cause, ns)


def _more(contexts: list[ContextTime], cause: str, ns: float, seed: np.random.Generator) -> list[ContextTime]:
    if cause == "slower kernels":
        kernels = sum(one.typical_ns for one in contexts if one.context.kind == "kernel")
        return [_scaled(one, 1.0 + ns / kernels) if one.context.kind == "kernel" else one for one in contexts]
    if cause == "data loading":
        return [*contexts, _new(contexts, Context("loader", "enumerate(DataLoader)#_Single.__next__"), ns)]
    if cause == "copies":
        return [*contexts, _new(contexts, Context("copy", "HtoD pageable device", until="device"), ns)]
    if cause == "operators":
        return [*contexts, _new(contexts, Context("operator", "aten::unique"), ns)]
    if cause == "more work":
        return [*contexts, _new(contexts, Context("kernel", "another_kernel", inside="64x1x1x256x1x1"), ns)]
    gaps = [row for row, one in enumerate(contexts) if one.context.kind == "python" and one.context.until]
    at = gaps[int(seed.integers(len(gaps)))]
    added = [time + round(ns) for time in contexts[at].time_ns]
    return [*contexts[:at], msgspec.structs.replace(contexts[at], time_ns=added), *contexts[at + 1 :]]


def _scaled(one: ContextTime, factor: float) -> ContextTime:
    return msgspec.structs.replace(one, time_ns=[round(time * factor) for time in one.time_ns])


def _new(contexts: list[ContextTime], context: Context, ns: float) -> ContextTime:
    return ContextTime(context, [round(ns)] * len(contexts[0].time_ns), 1.0)
