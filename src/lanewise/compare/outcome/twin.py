"""What a compiled run and its eager twin prove together, and neither proves alone."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.compare.model import Change
from lanewise.compare.sides.arm import Arm
from lanewise.diagnose.registry import find_rule
from lanewise.report.model import Finding
from lanewise.report.quantity import Quantity, count, time

__all__ = ["twin_statements"]

# Compilation changed only dispatch if the step time (CMP105) and the device time moved by less than this.
_SAME = 0.03
_ONE_TO_ONE = frozenset({"same", "launch", "name", "moved", "epilogue", "kernel"})


def twin_statements(a: Arm, b: Arm, changes: Sequence[Change]) -> list[Finding]:
    """CMP105 (nothing to fuse) and CMP103 (not amortised), where one side is compiled and the other is not."""
    if a.typical.compiled == b.typical.compiled or a.typical.partial or b.typical.partial:
        return []
    if not (a.typical.work.device and b.typical.work.device):
        return []
    eager, compiled = (b, a) if a.typical.compiled else (a, b)
    if a.unprofiled != b.unprofiled:
        return []
    found = [_nothing_to_fuse(eager, compiled, changes), _not_amortised(eager, compiled)]
    return [finding for finding in found if finding is not None]


def _nothing_to_fuse(eager: Arm, compiled: Arm, changes: Sequence[Change]) -> Finding | None:
    one_to_one = all(
        change.how in _ONE_TO_ONE or (change.how in {"fused", "split"} and len(change.a) == len(change.b) == 1)
        for change in changes
    )
    steps, devices = (eager.step_ns, compiled.step_ns), (eager.typical.device_ns, compiled.typical.device_ns)
    if not one_to_one or abs(steps[1] / steps[0] - 1) >= _SAME or devices[1] < (1 - _SAME) * devices[0]:
        return None
    ops = len(compiled.typical.work.at)
    title = f"All {ops} device ops map one to one to eager ones: compilation fused nothing and changed only dispatch."
    return _finding("CMP105", title, {"ops": count(ops)}, 0.0)


def _not_amortised(eager: Arm, compiled: Arm) -> Finding | None:
    cost = compiled.step_ns - eager.step_ns
    if eager.typical.regime != "host" or compiled.typical.regime != "host" or cost <= _SAME * eager.step_ns:
        return None
    values = {"compiled": time(compiled.step_ns), "eager": time(eager.step_ns), "cost": time(cost)}
    ops = len(compiled.typical.work.at)
    title = "The compiled step takes {compiled}, the eager one {eager}: compiling costs {cost} of host time per step"
    title = f"{title.format_map({name: str(value) for name, value in values.items()})} for {ops} device ops."
    return _finding("CMP103", title, values, cost)


def _finding(code: str, title: str, values: dict[str, Quantity], cost_ns: float) -> Finding:
    rule = find_rule(code)
    return Finding(
        code=code,
        name=rule.name,
        title=title,
        values=values,
        recoverable_us_per_step=round(cost_ns / 1e3, 3),
        alone_us_per_step=round(cost_ns / 1e3, 3),
        confidence="high",
        steps=[],
        evidence=[],
        fix=rule.section("Fix"),
        verify=rule.section("Verify"),
        kind="statement",
    )
