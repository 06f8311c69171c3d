"""The way from A's step time to B's, class by class. Every sum is exact: whole ns, with what is left over shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lanewise.compare.model import Change, Waterfall, WaterfallItem
from lanewise.compare.outcome.descriptions import change_label
from lanewise.compare.sides.arm import Arm
from lanewise.measure.regime.time_classes import CLASSES

__all__ = ["CLASS_LABELS", "build_waterfall", "whole_parts"]

CLASS_LABELS = {
    "compute": "device computes",
    "transfer": "device copies",
    "host": "device waits for the host",
    "communication": "communication",
    "dependency": "waits for other work",
    "unknown": "cannot be told",
    "rest": "device work beyond the step time",
    "step": "step",
}
_KINDS = {"compute": ("kernel",), "transfer": ("copy", "set")}
_MAX_PARTS = 8


def build_waterfall(a: Arm, b: Arm, changes: Sequence[Change], split: Mapping[int, Mapping[str, float]]) -> Waterfall:
    """The waterfall of two arms.

    Args:
        changes: of device work, the largest difference first.
        split: index of a change -> difference in ns per kind of op.
    """
    left, right = whole_parts(a.classes, a.step_ns), whole_parts(b.classes, b.step_ns)
    items: list[WaterfallItem] = []
    for key in (*CLASSES, "rest", "step"):
        ns = right.get(key, 0) - left.get(key, 0)
        if ns or key in ("compute", "host"):
            parts = _parts(ns, key, changes, split) if key in _KINDS else []
            items.append(WaterfallItem(key, CLASS_LABELS[key], ns, parts))
    present = [item for item in items if item.ns or item.parts]
    return Waterfall(sum(left.values()), sum(right.values()), present)


def whole_parts(classes: Mapping[str, float], step_ns: float) -> dict[str, int]:
    """Classes in whole ns that sum to the step: what they exceed it by (or lack) is the part `rest`.

    Without device work the step is one part, `step`.
    """
    total = round(step_ns)
    if not classes:
        return {"step": total}
    parts = {name: round(value) for name, value in classes.items()}
    missing = total - sum(parts.values())
    if abs(missing) <= len(parts):
        # Rounding alone: the largest part takes it.
        parts[max(parts, key=parts.__getitem__)] += missing
    else:
        parts["rest"] = missing
    return parts


def _parts(
    ns: int, key: str, changes: Sequence[Change], split: Mapping[int, Mapping[str, float]]
) -> list[WaterfallItem]:
    """The largest changes within a class, the others together, and what adding up durations misses (overlap)."""
    found: list[WaterfallItem] = []
    for index, change in enumerate(changes):
        delta = round(sum(split[index].get(kind, 0.0) for kind in _KINDS[key]))
        if delta:
            found.append(WaterfallItem(f"{key}.{index}", _label(change, _KINDS[key]), delta))
    found.sort(key=lambda item: -abs(item.ns))
    shown = found[:_MAX_PARTS]
    others = _total(found[_MAX_PARTS:])
    if others:
        shown.append(WaterfallItem(f"{key}.others", f"{len(found) - _MAX_PARTS} smaller changes", others))
    rest = ns - _total(shown)
    if rest and shown:
        shown.append(WaterfallItem(f"{key}.overlap", "overlap, and differences between the medians", rest))
    return shown


def _label(change: Change, kinds: tuple[str, ...]) -> str:
    label = change_label(change, kinds)
    return f"{label}: {change.how}" if change.how in {"new", "gone", "graph input"} else label


def _total(items: Iterable[WaterfallItem]) -> int:
    return sum(item.ns for item in items)
