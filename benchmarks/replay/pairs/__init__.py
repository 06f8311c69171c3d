"""Pairs of programs: one slow, and the same with one fix."""

from __future__ import annotations

from benchmarks.replay.pairs import copies, host, kernels, launch, memory, training, waits
from benchmarks.replay.pairs.base import Pair, Place, Step

__all__ = ["PAIRS", "Pair", "Place", "Step"]

PAIRS: tuple[Pair, ...] = (
    *waits.PAIRS,
    *copies.PAIRS,
    *host.PAIRS,
    *launch.PAIRS,
    *memory.PAIRS,
    *training.PAIRS,
    *kernels.PAIRS,
)
