"""Runs each measurement in a fresh process, forked from one that has imported torch and used no device."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.fresh import call

__all__ = ["Job", "run"]


class Job(NamedTuple):
    """A measurement: see `benchmarks.context.measure`."""

    kind: str
    program: str
    arm: str
    count: int


def run(job: Job, device: str, seconds: float) -> dict[str, Any]:
    """The answer of one process; `{"error": …}` if it fails or takes longer than `seconds`."""

    def measure() -> dict[str, Any]:
        import torch
        from benchmarks.context.measure import KINDS

        torch.set_num_threads(1)
        return KINDS[job.kind](job.program, job.arm, device, job.count)

    return call(measure, seconds=seconds)
