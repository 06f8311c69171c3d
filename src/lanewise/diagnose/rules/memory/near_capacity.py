"""MEM102."""

from __future__ import annotations

from typing import Any

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import ANNOTATION, BLOCKS, BYTES, MODULE, OPERATOR, headed
from lanewise.report.model import Block, TableColumn
from lanewise.report.quantity import byte_size, share

_FRAGMENTED_TITLE = (
    "The allocator keeps {reserved} for a peak of {allocated} in use: memory is fragmented, and {capacity} may not be "
    "enough."
)


@rule(
    "MEM102",
    "near-capacity",
    kind="statement",
    title="At its peak the program holds {reserved} of the device's {capacity} ({share}): it may run out of memory.",
)
def near_capacity(facts: Facts, *, share_from: float = 0.90, reserved_over_allocated: float = 1.5) -> Outcome:
    """The peak of memory in use is close to what the device has.

    Near the limit the allocator gives cached blocks back and asks again, which synchronises the device; one larger
    batch or sequence ends the run.

    Costs: nothing yet; it is a risk.

    Fix: lower the peak (smaller batch, activation checkpointing, sharding, freeing the largest owners below earlier),
    or `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` against fragmentation.

    Verify: the peak falls.

    Silent: without memory events.

    Source: the memory view of TensorBoard's profiler plug-in.
    """
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    use = facts.memory
    if use is None:
        return NeedsCapture("memory events: `profile_memory=True`, or `lanewise run --memory`")
    if not use.capacity:
        return NeedsCapture("`deviceProperties` of the device: this file does not say how much memory it has")
    held = max(use.peak, use.peak_reserved)
    fragmented = use.peak_reserved > 0.5 * use.capacity and use.peak_reserved >= reserved_over_allocated * use.peak
    if held <= share_from * use.capacity and not fragmented:
        return Clear(f"the peak is {held / use.capacity:.0%} of the device's memory")
    owners: list[dict[str, Any]] = [
        {
            "operator": owner.operator or "outside operators",
            "module": owner.module,
            "annotation": owner.annotation,
            "step": str(owner.step) if owner.step >= 0 else "",
            "bytes": owner.bytes,
            "blocks": owner.blocks,
        }
        for owner in use.owners
    ]
    older = use.peak - use.known_at_peak
    if older > 0:
        owners.append(
            {
                "operator": "from before the recording",
                "module": "",
                "annotation": "",
                "step": "",
                "bytes": older,
                "blocks": 0,
            }
        )
    owners.sort(key=lambda row: -row["bytes"])
    evidence: list[Block] = [
        table(
            "Who holds the memory at the peak",
            [OPERATOR, MODULE, ANNOTATION, TableColumn("step", "text", "step"), headed(BYTES, "size"), BLOCKS],
            owners,
        )
    ]
    example = next((owner.example for owner in use.owners if owner.example >= 0), -1)
    return Found(
        values={
            "reserved": byte_size(held),
            "allocated": byte_size(use.peak),
            "capacity": byte_size(use.capacity),
            "share": share(held / use.capacity),
        },
        title=None if held > share_from * use.capacity else _FRAGMENTED_TITLE,
        evidence=evidence,
        location=locate(facts, example),
    )
