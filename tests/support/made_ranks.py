"""Summaries of ranks made by hand: what they exchange, and what they work by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.measure.distributed.communications import Communication
from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import ContextTime, RankSummary

__all__ = ["exchanged", "made_rank"]


def made_rank(
    rank: int,
    communications: Sequence[Communication] = (),
    *,
    world: int = 2,
    device_ns: int = 0,
    step_ns: float = 10e6,
    **more: object,
) -> RankSummary:
    """A rank that computes for `device_ns` in each of two steps of `step_ns`."""
    contexts = (
        [ContextTime(Context("kernel", "gemm", inside="1x1x1"), [device_ns, device_ns], 1.0)] if device_ns else []
    )
    return RankSummary(
        rank=rank,
        world=world,
        file=f"rank{rank}.json.gz",
        digest=f"{rank}",
        device="a card" if device_ns else "",
        steps=[0, 1],
        timed_ns=step_ns,
        recorded_ns=2 * step_ns,
        alone_ns=step_ns,
        contexts=contexts,
        communications=list(communications),
        **more,  # type: ignore[arg-type]
    )


def exchanged(
    name: str,
    start: int,
    end: int,
    *,
    step: int = 0,
    size: int = 2,
    bytes_: int = 1000,
    hidden: int = 0,
    ends: tuple[int, int] = (-1, -1),
    group: str = "0",
    about: str = "",
) -> Communication:
    """One collective or transfer, ns."""
    return Communication(name, group, *ends, step, bytes_, start, end, hidden, size, about)
