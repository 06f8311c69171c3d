"""Quantities per step on both sides."""

from __future__ import annotations

from lanewise.compare.model import CountChange
from lanewise.compare.sides.arm import Arm

__all__ = ["count_changes"]

_COUNTS = {
    "launches": "launches",
    "kernels": "kernels",
    "copies": "copies and sets",
    "waits": "waits for the device",
    "wait_ns": "time in these waits",
}


def count_changes(a: Arm, b: Arm) -> list[CountChange]:
    """Launches, kernels, copies, waits, device and idle time, memory: those that either side has."""
    left, right = a.typical, b.typical
    rows = [CountChange("step", "step time", "time", a.step_ns, b.step_ns)]
    if left.work.device or right.work.device:
        rows += [
            CountChange("idle", "device idle", "time", _idle(a), _idle(b)),
            CountChange("busy", "device busy", "share", left.busy_share, right.busy_share),
        ]
    if left.device_ns and right.device_ns and left.work.device:
        rows.insert(1, CountChange("device", "device time", "time", left.device_ns, right.device_ns))
    for key, label in _COUNTS.items():
        if key in left.counts and key in right.counts:
            type_ = "time" if key.endswith("_ns") else "count"
            rows.append(CountChange(key, label, type_, left.counts[key], right.counts[key]))
    if left.memory_peak >= 0 and right.memory_peak >= 0:
        rows.append(CountChange("memory", "memory peak", "bytes", left.memory_peak, right.memory_peak))
    if not (left.work.device or right.work.device):
        rows.append(CountChange("operators", "operators", "count", len(left.work.at), len(right.work.at)))
    return [row for row in rows if row.a or row.b]


def _idle(arm: Arm) -> float:
    return max(0.0, arm.step_ns * (1 - arm.typical.busy_share)) if arm.typical.work.device else 0.0
