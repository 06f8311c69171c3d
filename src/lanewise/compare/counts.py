"""Quantities per step on both sides."""

from __future__ import annotations

from lanewise.compare.arm import Arm
from lanewise.compare.model import CountChange

__all__ = ["count_changes"]


def count_changes(a: Arm, b: Arm) -> list[CountChange]:
    """Launches, kernels, copies, waits, device and idle time, memory: those that either side has."""
    left, right = a.typical, b.typical
    rows = [
        CountChange("step", "step time", "time", a.step_ns, b.step_ns),
        CountChange("device", "device time", "time", left.device_ns, right.device_ns),
        CountChange("idle", "device idle", "time", _idle(a), _idle(b)),
        CountChange("busy", "device busy", "share", left.busy_share, right.busy_share),
        CountChange("launches", "launches", "count", left.counts["launches"], right.counts["launches"]),
        CountChange("kernels", "kernels", "count", left.counts["kernels"], right.counts["kernels"]),
        CountChange("copies", "copies and sets", "count", left.counts["copies"], right.counts["copies"]),
        CountChange("waits", "waits for the device", "count", left.counts["waits"], right.counts["waits"]),
        CountChange("wait_time", "time in these waits", "time", left.counts["wait_ns"], right.counts["wait_ns"]),
    ]
    if left.memory_peak >= 0 and right.memory_peak >= 0:
        rows.append(CountChange("memory", "memory peak", "bytes", left.memory_peak, right.memory_peak))
    if not (left.work.device or right.work.device):
        rows = [row for row in rows if row.key in {"step", "memory"}]
        leaves = len(left.work.at), len(right.work.at)
        rows.insert(1, CountChange("operators", "operators", "count", *leaves))
    return [row for row in rows if row.a or row.b]


def _idle(arm: Arm) -> float:
    return max(0.0, arm.step_ns * (1 - arm.typical.busy_share)) if arm.typical.work.device else 0.0
