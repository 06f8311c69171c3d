"""Whether two runs may be compared at all, and what makes a comparison weaker."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.compare.model import EnvironmentDifference
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.step_work import Op, Work

__all__ = ["incomparable", "warnings"]

_DTYPES = {
    "c10::BFloat16": "bfloat16",
    "at::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "at::Half": "float16",
    "float": "float32",
    "double": "float64",
}
_PRODUCT_WORDS = """mm addmm bmm baddbmm convolution cudnn_convolution mkldnn_convolution _convolution linear matmul
    _scaled_mm scaled_dot_product_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention"""
_PRODUCTS = frozenset(f"aten::{name}" for name in _PRODUCT_WORDS.split())
_SOURCES = {"profiler": "recorded steps", "serving": "serving steps", "window": "one region without steps"}
_MOSTLY = 0.5


def incomparable(a: Arm, b: Arm, environment: Sequence[EnvironmentDifference]) -> list[str]:
    """Reasons why times of the two say nothing about each other; empty if they do."""
    reasons = [f"{item.key} differs: {item.a} and {item.b}" for item in environment if item.weight == "refuse"]
    left, right = a.typical, b.typical
    if left.step_source != right.step_source:
        reasons.append(f"{a.label} has {_SOURCES[left.step_source]}, {b.label} has {_SOURCES[right.step_source]}")
    if left.trains != right.trains and not (left.partial or right.partial):
        which, other = (a.label, b.label) if left.trains else (b.label, a.label)
        reasons.append(f"{which} runs a backward pass and {other} does not")
    types = _dtypes(left.work), _dtypes(right.work)
    if all(types) and not (types[0] & types[1]):
        names = [" and ".join(sorted(side)) for side in types]
        reasons.append(f"matrix products are in {names[0]} and in {names[1]}")
    elif _sizes_differ(left.work, right.work):
        reasons.append("the tensors have different sizes (the same kernels or products run on different shapes)")
    return reasons


def warnings(a: Arm, b: Arm, environment: Sequence[EnvironmentDifference]) -> list[str]:
    """What the reader must know before believing the numbers, in sentences."""
    found: list[str] = []
    watched = all(arm.typical.partial and arm.typical.tree is not None for arm in (a, b))
    recorder = "watching" if watched else "the profiler"
    if a.unprofiled != b.unprofiled:
        which = a.label if a.unprofiled else b.label
        found.append(
            f"Only {which} has a step time without {recorder}: both sides are compared as recorded, which "
            "inflates host time."
        )
    elif not a.unprofiled:
        why = "by how much was not measured well enough" if watched else "--step-time gives the real ones"
        found.append(f"Step times are as recorded: {recorder} inflates host time ({why}).")
    for arm in (a, b):
        run = arm.typical
        if run.partial:
            of_tree = run.tree is not None
            what = "a tree: it holds places and costs" if of_tree else "a report: it holds step times and findings"
            found.append(f"{arm.label} is {what}, but no work to compare op by op.")
            continue
        if run.steady and len(run.work.duration) and len(run.work.duration) * 2 < run.work.steps:
            found.append(
                f"{arm.label}: only {len(run.work.duration)} of {run.work.steps} steady steps launch the same "
                "work; device work is compared on these."
            )
        if len(arm.alike) < len(arm.runs):
            found.append(
                f"{arm.label}: {len(arm.runs) - len(arm.alike)} of {len(arm.runs)} runs launch other work; "
                "device work is compared without them."
            )
        short = _unsteady(arm)
        if short:
            found.append(short)
    flags = [item for item in environment if item.key.startswith("recorded ")]
    if flags:
        what = ", ".join(item.key.removeprefix("recorded ") for item in flags)
        found.append(f"Recorded with different options ({what}): the profiler slows the two sides differently.")
    return found


def _unsteady(arm: Arm) -> str:
    run = arm.typical
    if run.steps == 0 or run.steady >= 3:
        return ""
    return f"{arm.label} has {run.steady} steady steps: too few for statistics over steps."


def _dtypes(work: Work) -> set[str]:
    """Types of the operands of matrix products, where shapes were recorded."""
    return {_DTYPES[op.dtype] for op in work.ops if op.dtype in _DTYPES and _is_product(op)}


def _is_product(op: Op) -> bool:
    return bool(op.operators) and op.operators[0] in _PRODUCTS


def _sizes_differ(a: Work, b: Work) -> bool:
    """Whether most of what both sides certainly share runs on other sizes."""
    shapes = [{op.shapes for op in work.ops if op.shapes and _is_product(op)} for work in (a, b)]
    if all(shapes):
        return not (shapes[0] & shapes[1])
    grids: list[dict[str, set[str]]] = []
    for work in (a, b):
        of_kernel: dict[str, set[str]] = {}
        for op in work.ops:
            if op.kind == "kernel" and op.launch:
                of_kernel.setdefault(op.name, set()).add(op.launch)
        grids.append(of_kernel)
    shared = grids[0].keys() & grids[1].keys()
    other = [name for name in shared if not (grids[0][name] & grids[1][name])]
    return len(shared) > 0 and len(other) > _MOSTLY * len(shared)
