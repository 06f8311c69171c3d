"""KER106."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.kernel_groups import KernelGroup
from lanewise.replay.change import Change
from lanewise.report.evidence_columns import BLOCKS, COUNT, DURATION, KERNEL, SHAPES
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, share, text, time
from lanewise.trace.intervals import covered, union
from lanewise.trace.schema import Kind

# Kernels that choose their own grid: one block per SM, or one per piece of a split sum, says nothing about idle SMs.
_OWN_GRID = re.compile(
    r"nvjet|warpgroup|warpspecialized|persistent|cooperative|stream_?k|sm90_xmma|sm100_|splitK|split_k|ReduceSplitK|"
    r"nccl|flash_fwd_splitkv",
    re.IGNORECASE,
)

# A kernel that runs beside others for more than this share of its time does not have the device for itself.
_BESIDE_FROM = 0.5


class _Thin(NamedTuple):
    group: KernelGroup
    blocks: int
    waves: float
    lost: float


@rule(
    "KER106",
    "under-filled-grid",
    title="Kernels that take {share} of the computing time ({total} {per}) leave {idle} of the {sms} "
    "multiprocessors idle; "
    "the largest starts {blocks} blocks{wave}.",
)
def under_filled_grid(
    facts: Facts,
    *,
    blocks_below: float = 0.75,
    kernel_from_us: float = 20.0,
    last_wave_below: float = 0.25,
    waves_below: float = 3.0,
    share_from: float = 0.05,
) -> Outcome:
    """Long kernels leave part of the device without a block to run.

    A block runs on one multiprocessor. With fewer blocks than multiprocessors some stay idle for the whole kernel;
    with a nearly empty last wave they stay idle for its last part.

    Costs: the kernels' time times the idle part of the device.

    Fix: more parallel work per launch: a larger batch, a split of the long dimension (split-K, split along the
    sequence), smaller tiles, or several such kernels at once on different streams.

    Verify: the grid grows to at least the number of multiprocessors, and the kernel gets shorter.

    Silent: for kernels below 20 us, for those that choose one block per multiprocessor by design (persistent and
    warp-specialised ones), for communication, and for kernels that run beside those of another stream, which use what they
    leave.

    Source: HTA's and TraceLens's kernel views.
    """
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    sms = facts.device.sms
    if not sms:
        return NeedsCapture("`deviceProperties` of the device: this file does not say how many multiprocessors it has")
    thin = [
        found
        for group in _by_themselves(facts)
        if group.total / len(group.rows) > kernel_from_us * 1e3
        and (found := _thin(facts, group, blocks_below, waves_below, last_wave_below)) is not None
    ]
    steps, compute = facts.steady_count, compute_ns(facts)
    total = sum(found.group.total for found in thin) / steps
    if not thin or total < share_from * compute:
        return Clear(f"kernels with too small a grid take {total / compute:.1%} of the computing time")
    lost = sum(found.group.total * found.lost for found in thin) / steps
    rows: list[dict[str, Any]] = [
        {
            "kernel": kernel_label(facts, found.group.example),
            "shapes": shapes_label(facts, found.group.operator),
            "blocks": found.blocks,
            "waves": found.waves if found.waves >= 0 else None,
            "count": len(found.group.rows) / steps,
            "duration": found.group.total / len(found.group.rows),
            "lost": found.lost,
        }
        for found in thin
    ]
    return Found(
        values={
            "share": share(total / compute),
            "total": time(total),
            "per": per(facts),
            "sms": count(sms),
            "blocks": count(thin[0].blocks),
            "idle": share(lost / max(1.0, total)),
            "wave": text("" if thin[0].blocks < sms else ", the last of them in a nearly empty wave"),
        },
        change=_filled(facts, thin),
        bound=True,
        evidence=[
            table(
                "Kernels and their grids",
                [
                    KERNEL,
                    SHAPES,
                    BLOCKS,
                    TableColumn("waves", "count", "waves"),
                    COUNT,
                    DURATION,
                    TableColumn("lost", "share", "idle part"),
                ],
                rows,
            )
        ],
        location=locate(facts, thin[0].group.call),
        events=np.concatenate([facts.trace.device_work[found.group.rows] for found in thin]).tolist(),
    )


def _by_themselves(facts: Facts) -> list[KernelGroup]:
    """Groups with only those kernels that run mostly alone."""
    trace, work = facts.trace, facts.trace.device_work
    kernels = np.flatnonzero(trace.kind[work] == Kind.KERNEL)
    event = work[kernels]
    lanes = np.unique(trace.lane[event])
    beside = np.zeros(len(work), dtype=bool)
    if len(lanes) > 1:
        of_device = trace["lanes"]["process"][trace.lane[event]]
        for lane in lanes.tolist():
            mine = trace.lane[event] == lane
            others = event[~mine & (of_device == trace["lanes"]["process"][lane])]
            start, end = trace.start[event[mine]], trace.end[event[mine]]
            busy = covered(union(trace.start[others], trace.end[others]), start, end)
            beside[kernels[mine]] |= busy > _BESIDE_FROM * (end - start)
    if not beside.any():
        return list(facts.kernel_groups)
    kept = [(group, group.rows[~beside[group.rows]]) for group in facts.kernel_groups]
    alone = [
        group._replace(rows=rows, total=int(trace.duration[work[rows]].sum())) for group, rows in kept if len(rows)
    ]
    return sorted(alone, key=lambda group: -group.total)


def _filled(facts: Facts, thin: list[_Thin]) -> Change:
    """Each kernel with a grid that fills the device."""
    rows = np.concatenate([found.group.rows for found in thin])
    left = np.concatenate([np.full(len(found.group.rows), 1 - found.lost) for found in thin])
    return rescale(facts, facts.trace.device_work[rows], left)


def _thin(facts: Facts, group: KernelGroup, blocks_below: float, waves_below: float, last_below: float) -> _Thin | None:
    if group.arguments < 0:
        return None
    blocks, sms = int(facts.occupancy.blocks[group.arguments]), facts.device.sms
    waves = float(facts.occupancy.waves[group.arguments])
    last = waves % 1
    if 0 < blocks < blocks_below * sms:
        lost = 1 - blocks / sms
    elif 1 < waves < waves_below and 0 < last < last_below:
        lost = 1 - waves / math.ceil(waves)
    else:
        return None
    if _OWN_GRID.search(facts.trace.name_of(group.example)):
        return None
    return _Thin(group, blocks, round(waves, 2) if waves == waves else -1.0, lost)
