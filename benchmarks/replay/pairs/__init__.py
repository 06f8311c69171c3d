"""Pairs of programs: one slow, and the same with one fix. And programs with several faults, one fix each."""

from __future__ import annotations

from benchmarks.replay.pairs import copies, host, kernels, launch, memory, training, waits
from benchmarks.replay.pairs.base import Pair, Place, Step
from benchmarks.replay.pairs.several import Several, several

__all__ = ["PAIRS", "SEVERAL", "Pair", "Place", "Several", "Step"]

PAIRS: tuple[Pair, ...] = (
    *waits.PAIRS,
    *copies.PAIRS,
    *host.PAIRS,
    *launch.PAIRS,
    *memory.PAIRS,
    *training.PAIRS,
    *kernels.PAIRS,
)

SEVERAL: tuple[Several, ...] = several(PAIRS)
