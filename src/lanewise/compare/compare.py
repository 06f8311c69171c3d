"""`compare`: two or more arms -> a `Comparison`."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise._version import __version__
from lanewise.compare.environment import environment_differences
from lanewise.compare.matching.context_alignment import compare_contexts
from lanewise.compare.model import SCHEMA, Comparison, ContextChange, Difference
from lanewise.compare.outcome.changes import device_changes
from lanewise.compare.outcome.comparable import incomparable, warnings
from lanewise.compare.outcome.counts import count_changes
from lanewise.compare.outcome.findings import compare_findings
from lanewise.compare.outcome.host_time import host_changes
from lanewise.compare.outcome.step_ratio import step_ratio
from lanewise.compare.outcome.twin import twin_statements
from lanewise.compare.outcome.verdict import is_change, verdict
from lanewise.compare.outcome.waterfall import build_waterfall
from lanewise.compare.sides.arm import Arm, paired
from lanewise.errors import UsageError
from lanewise.tree.views import merge_layers

__all__ = ["compare_arms"]


def compare_arms(arms: Sequence[Arm], *, anyway: bool = False) -> Comparison:
    """Compare every arm with the first.

    Args:
        arms: two or more.
        anyway: compare even what is not comparable; the reasons then stand among the warnings.

    Raises:
        UsageError: fewer than two arms, the same recording on two sides, a side without work, or sides that are not
            comparable.
    """
    if len(arms) < 2:
        raise UsageError("a comparison needs two sides: lanewise diff A B")
    _check(arms)
    base, *others = arms
    return Comparison(
        schema=SCHEMA,
        version=__version__,
        base=base.summary(),
        others=[other.summary() for other in others],
        differences=[_difference(base, other, anyway) for other in others],
    )


def _check(arms: Sequence[Arm]) -> None:
    seen: dict[str, str] = {}
    for arm in arms:
        for run in arm.runs:
            if run.digest and run.digest in seen:
                raise UsageError(f"{seen[run.digest]} and {run.source} hold the same recording: nothing to compare")
            if run.digest:
                seen[run.digest] = run.source
            if len(run.work.at) == 0 and not run.partial:
                what = "device work or operators in its steps" if run.steps else "device work and no operators"
                raise UsageError(f"{run.source} has no {what}: there is nothing to compare")


def _difference(a: Arm, b: Arm, anyway: bool) -> Difference:
    environment = environment_differences(a.typical.environment, b.typical.environment)
    reasons = incomparable(a, b, environment)
    if reasons and not anyway:
        why = "; ".join(reasons)
        raise UsageError(
            f"{a.label} and {b.label} are not comparable: {why}. Add --anyway to compare them all the same"
        )
    told = [f"Not comparable, compared because you asked: {reason}." for reason in reasons]
    device = device_changes(a, b, pair=paired(a, b))
    step = step_ratio(a, b)
    waterfall = build_waterfall(a, b, device.changes, device.split)
    host = host_changes(a, b)
    changed = is_change(device.changes, step)
    difference = Difference(
        a=a.label,
        b=b.label,
        verdict="",
        changed=changed,
        step=step,
        warnings=told + warnings(a, b, environment),
        environment=environment,
        waterfall=waterfall,
        counts=count_changes(a, b),
        device=device.changes,
        coverage=device.coverage,
        common=device.common,
        host=host,
        findings=compare_findings(a.typical.findings, b.typical.findings),
        statements=twin_statements(a, b, device.changes),
        contexts=_contexts(a, b),
    )
    return verdict(a, b, difference)


def _contexts(a: Arm, b: Arm) -> list[ContextChange]:
    left, right = a.typical, b.typical
    if left.tree is None or right.tree is None:
        return []
    return compare_contexts(
        merge_layers(left.tree), merge_layers(right.tree), a_steps=max(1, left.steady), b_steps=max(1, right.steady),
        a_scale=left.host_scale, b_scale=right.host_scale,
    )  # fmt: skip
