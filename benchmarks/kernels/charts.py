"""Charts of benchmark documents as SVG, without a plotting library: one line per arm over the sizes of a kernel.

The vertical axis is the rate the kernel lives by, GB/s (bytes that have to move, over time) with the card's copy
bandwidth as a dashed line, or TFLOP/s. Every chart states card, versions and what was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["chart", "write_charts"]

_COLOURS = {
    "lanewise": "#d9480f",
    "triton": "#f08c00",
    "eager": "#1971c2",
    "compile": "#2f9e44",
    "max-autotune": "#9c36b5",
    "liger": "#e64980",
    "cublas epilogue": "#0c8599",
    "mm alone": "#868e96",
    "copy": "#868e96",
}
_PRODUCTS = ("mm", "gemm", "gated_linear", "batched_linear", "mlp")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 380, 64, 64, 56


def _label(case: dict[str, Any]) -> str:
    shape = case["shape"]
    if "cols" in shape:
        return f"{shape['rows']}x{shape['cols']}"
    if "operations" in shape:
        return str(shape["operations"])
    return case["name"].removeprefix("linear + ").removeprefix("mlp ").replace(" rows, 4096 -> 2x14336", "")


def chart(title: str, cases: Sequence[dict[str, Any]], machine: dict[str, Any], copy: float) -> str:
    """One SVG document: an arm per line, a case per step of the horizontal axis."""
    product = cases[0]["group"] in _PRODUCTS
    field = "tflop_per_s" if product else "gb_per_s"
    unit = "TFLOP/s" if product else "GB/s"
    arms = [name for name in _COLOURS if any(name in case["arms"] for case in cases)]
    top = max([arm[field] for case in cases for arm in case["arms"].values()] + ([] if product else [copy])) * 1.08
    step = (_WIDTH - _LEFT - 48) / max(len(cases) - 1, 1)

    def x(index: int) -> float:
        return _LEFT + (index * step if len(cases) > 1 else (_WIDTH - _LEFT) / 2)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)

    text = 'font-family="sans-serif" fill="#343a40"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="18" font-size="14" {text}>{escape(title)}, {unit}</text>',
    ]
    for number in range(5):
        value = top * number / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e9ecef"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" font-size="10" text-anchor="end" {text}>{value:.0f}</text>'
        )
    if not product:
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(copy):.1f}" y2="{y(copy):.1f}" stroke="#868e96" '
            f'stroke-dasharray="5 4"/><text x="{_WIDTH - 18}" y="{y(copy) - 4:.1f}" font-size="10" text-anchor="end" '
            f"{text}>copy {copy:.0f}</text>"
        )
    for index, case in enumerate(cases):
        parts.append(
            f'<text x="{x(index):.1f}" y="{_HEIGHT - _BOTTOM + 16}" font-size="9" text-anchor="middle" {text}>'
            f"{escape(_label(case))}</text>"
        )
    for number, name in enumerate(arms):
        points = [(x(i), y(case["arms"][name][field])) for i, case in enumerate(cases) if name in case["arms"]]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        colour = _COLOURS[name]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        at = _LEFT + number * 98
        parts.append(
            f'<rect x="{at}" y="28" width="12" height="4" fill="{colour}"/>'
            f'<text x="{at + 16}" y="34" font-size="11" {text}>{escape(name)}</text>'
        )
    where = (
        f"{machine['card']}, torch {machine['torch']}, triton {machine['triton']}, bf16; device time in a CUDA graph"
    )
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}" font-size="10" {text}>{escape(where)}</text></svg>')
    return "\n".join(parts) + "\n"


def write_charts(documents: Sequence[dict[str, Any]], directory: Path) -> list[Path]:
    """A chart per group of cases; a later document's case replaces an earlier one of the same name."""
    directory.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        for case in document["cases"]:
            if "arms" in case:
                found[case["name"]] = case
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in found.values():
        groups.setdefault(case["group"], []).append(case)
    written: list[Path] = []
    for group, members in groups.items():
        chosen = [case for case in members if group != "pointwise" or "operations" in case["shape"]]
        if not chosen:
            continue
        chosen.sort(key=lambda case: list(case["shape"].values())[::-1])
        path = directory / f"{group}.svg"
        latest = documents[-1]
        path.write_text(
            chart(group.replace("_", " "), chosen, latest["machine"], latest["calibration_start"]["copy_gb_per_s"]),
            encoding="utf-8",
        )
        written.append(path)
    return written
