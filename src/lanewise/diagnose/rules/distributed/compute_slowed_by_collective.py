"""DIS105."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import of_step, per
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.flops import work_of
from lanewise.measure.kernel.kernel_groups import KernelGroup
from lanewise.replay.change import shorten
from lanewise.report.evidence_columns import BLOCKS, COUNT, KERNEL, SHAPES, headed
from lanewise.report.model import Block, TableColumn, TextBlock
from lanewise.report.quantity import count, ratio, share, time
from lanewise.trace.intervals import covered

# A kernel counts as beside a collective when most of it is.
_BESIDE = 0.5

# Kinds of kernels below this share of the kernels' time cannot add up to a finding.
_WORTH = 0.001


@rule(
    "DIS105",
    "compute-slowed-by-collective",
    title="Kernels run {slower} slower alongside collectives, which hold some of the {sms} multiprocessors: {excess} "
    "{per} "
    "({share} of the step).",
)
def compute_slowed_by_collective(facts: Facts, *, slower_from: float = 1.2, share_from: float = 0.02) -> Outcome:
    """A running collective occupies multiprocessors, and kernels that need all of them take longer.

    NCCL starts a block per channel. A kernel with about as many blocks as multiprocessors then needs a second wave
    for the few blocks that find no place, and takes up to twice as long.

    Costs: the excess over the same kernels without a collective beside them, if the device is the bottleneck.

    Fix: first end the waiting for late ranks (DIS102), during which the collective holds its multiprocessors for
    nothing; then fewer channels (`NCCL_MAX_CTAS`), or tiles that fit the free multiprocessors.

    Verify: the medians meet.

    Silent: for collectives on the stream that computes: nothing runs beside them.

    Source: a 128-block product went from 91 to 176 us beside 24 NCCL blocks on our H100.
    """
    trace = facts.trace
    if not facts.is_family("communication").any():
        return NotApplicable("the trace holds no collectives")
    spinning = facts.overlap.communication
    steps = facts.steady_count
    found: list[tuple[float, dict[str, Any], np.ndarray, int]] = []
    plains: list[np.ndarray] = []
    plain_total = beside_total = 0.0
    work = trace.device_work
    inside = covered(spinning, trace.start[work], trace.end[work])
    everything = sum(group.total for group in facts.kernel_groups)
    groups = [group for group in facts.kernel_groups if group.total >= _WORTH * everything]
    undisturbed = _undisturbed(facts, groups, inside)
    for group in groups:
        events = trace.device_work[group.rows]
        duration = trace.duration[events]
        beside = inside[group.rows] > _BESIDE * duration
        plain = undisturbed.get(_kind(facts, group), 0.0)
        if not beside.any() or not plain:
            continue
        slowed = float(np.median(duration[beside]))
        if slowed < slower_from * plain:
            continue
        excess = float(np.maximum(duration[beside] - plain, 0).sum()) / steps
        plain_total += plain * int(beside.sum())
        plains.append(np.full(int(beside.sum()), plain))
        beside_total += float(duration[beside].sum())
        row = group.arguments
        found.append(
            (
                excess,
                {
                    "kernel": kernel_label(facts, group.example),
                    "shapes": shapes_label(facts, group.operator),
                    "blocks": int(facts.occupancy.blocks[row]) if row >= 0 else -1,
                    "count": int(beside.sum()) / steps,
                    "alone": plain,
                    "beside": slowed,
                    "excess": excess,
                },
                events[beside],
                group.call,
            )
        )
    total = sum(excess for excess, *_ in found)
    if not found or total < share_from * facts.steps.step_ns:
        return Clear(f"kernels lose {of_step(facts, total):.1%} of the step alongside collectives")
    found.sort(key=lambda item: -item[0])
    evidence: list[Block] = [
        table(
            "Kernels with and without a collective alongside",
            [
                KERNEL,
                SHAPES,
                BLOCKS,
                headed(COUNT, "alongside one, per step"),
                TableColumn("alone", "time", "alone"),
                TableColumn("beside", "time", "alongside one"),
                TableColumn("excess", "time", "excess per step"),
            ],
            [row for _, row, *_ in found],
        )
    ]
    if facts.regime.name != "compute":
        evidence.append(
            TextBlock(
                "This rank is not bound by its device: the collective holds its multiprocessors while it "
                "waits. Find out first which rank is late (DIS102)."
            )
        )
    return Found(
        values={
            "slower": ratio(beside_total / max(1.0, plain_total)),
            "sms": count(facts.device.sms),
            "excess": time(total),
            "share": share(of_step(facts, total)),
            "per": per(facts),
        },
        change=shorten(np.concatenate([events for _, _, events, _ in found]), np.concatenate(plains)),
        confidence="high" if facts.health.shapes else "medium",
        evidence=evidence,
        location=locate(facts, found[0][3]),
        events=np.concatenate([events for _, _, events, _ in found]).tolist(),
    )


def _kind(facts: Facts, group: KernelGroup) -> tuple[int, int, float]:
    """What makes two kernels comparable: name, grid, and the FLOPs of their operator (a product and its transpose)."""
    row = group.arguments
    call = facts.signatures.of(group.operator)
    work = work_of(facts.trace.name_of(group.operator), call) if call else None
    flops = work.flops if work and work.flops else float(hash(call) if call else -1)
    return int(facts.trace.name[group.example]), int(facts.occupancy.blocks[row]) if row >= 0 else -1, flops


def _undisturbed(facts: Facts, groups: list[KernelGroup], inside: np.ndarray) -> dict[tuple[int, int, float], float]:
    """Median duration of comparable kernels that no collective touches, ns."""
    trace = facts.trace
    alone: dict[tuple[int, int, float], list[np.ndarray]] = {}
    for group in groups:
        free = group.rows[inside[group.rows] == 0]
        if len(free):
            alone.setdefault(_kind(facts, group), []).append(trace.duration[trace.device_work[free]])
    return {kind: float(np.median(np.concatenate(parts))) for kind, parts in alone.items()}
