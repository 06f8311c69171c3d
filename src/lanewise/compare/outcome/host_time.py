"""Host time by name on both sides."""

from __future__ import annotations

from lanewise.compare.model import HostChange
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import HostCost

__all__ = ["host_changes"]

_MAX_ROWS = 200


def host_changes(a: Arm, b: Arm) -> list[HostChange]:
    """Host self time per step and name, the largest difference first.

    Scaled where the step time without the profiler is known: host rows of a trace are inflated.
    """
    left, right = _by_name(a), _by_name(b)
    found: list[HostChange] = []
    for group, name in {**left, **right}:
        x, y = left.get((group, name)), right.get((group, name))
        found.append(
            HostChange(
                group,
                name,
                x.calls if x else 0.0,
                y.calls if y else 0.0,
                x.self_ns * a.typical.host_scale if x else 0.0,
                y.self_ns * b.typical.host_scale if y else 0.0,
            )
        )
    found.sort(key=lambda change: (-abs(change.b_ns - change.a_ns), change.name))
    return found[:_MAX_ROWS]


def _by_name(arm: Arm) -> dict[tuple[str, str], HostCost]:
    return {(cost.group, cost.name): cost for cost in arm.typical.host}
