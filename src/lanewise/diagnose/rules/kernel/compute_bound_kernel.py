"""KER103."""

from __future__ import annotations

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.roofline_evidence import no_roofline, per_step_ns, roof_table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.diagnose.select import compute_ns, counted, per
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof
from lanewise.report.model import Block, TextBlock
from lanewise.report.quantity import share, text, time


@rule(
    "KER103",
    "compute-bound-kernel",
    kind="statement",
    title="{operators} ({top} first) running at {of_compute} of the card's peak, {total} {per}: as fast as this card gets.",
)
def compute_bound_kernel(facts: Facts, *, share_from: float = 0.05, of_compute_from: float = 0.70) -> Outcome:
    """Matrix work that runs near the peak of its units.

    There is nothing to tune in these kernels: only less work, or a narrower type, makes them faster.

    Costs: nothing that could be saved.

    Fix: fewer FLOPs (a smaller model, a better algorithm) or a narrower type (bf16, fp8) where accuracy allows.

    Verify: the FLOPs or the type change; the share of the peak stays.

    Silent: above 100 % of the peak (the shapes or types are not those that ran, which is said instead), and on plain
    units where tensor cores would do (KER104).

    Source: "Making Deep Learning Go Brrrr From First Principles"; 83 % for a 4096 x 16384 x 4096 product on our H100.
    """
    reason = no_roofline(facts)
    if reason is not None:
        return reason
    compute = compute_ns(facts)
    large = [roof for roof in facts.roofline if per_step_ns(facts, roof) >= share_from * compute]
    impossible = [roof for roof in large if roof.impossible]
    roofs = [
        roof
        for roof in large
        if roof.of_compute >= of_compute_from and not roof.impossible and not _on_plain_units(facts, roof)
    ]
    if not roofs:
        if impossible:
            worst = impossible[0]
            return Clear(
                f"{worst.name} would reach {worst.of_compute:.0%} of the peak: its shapes or types are not what ran"
            )
        return Clear("no operator with a large share computes near the peak")
    peak, top = facts.device.peak, roofs[0]
    evidence: list[Block] = [roof_table(facts, f"Against the peaks of {peak.card if peak else ''}", roofs)]
    if impossible:
        evidence.append(
            TextBlock(
                "{operators} would exceed the peak: recorded shapes or types are not what ran.",
                {"operators": text(", ".join(sorted({roof.name for roof in impossible})))},
            )
        )
    return Found(
        values={
            "operators": counted(len(roofs), "operator", "operators"),
            "top": text(top.name),
            "of_compute": share(max(roof.of_compute for roof in roofs)),
            "total": time(sum(per_step_ns(facts, roof) for roof in roofs)),
            "per": per(facts),
        },
        evidence=evidence,
        location=locate(facts, int(facts.trace.links.launch[top.rows[0]])),
    )


def _on_plain_units(facts: Facts, roof: Roof) -> bool:
    """Whether it does without tensor cores that the card has for its type."""
    names = facts.trace.name[facts.trace.device_work[roof.rows]]
    peak = facts.device.peak
    return bool(peak and peak.tf32) and bool((facts.tensor_cores_of_name[names] == 0).any())
