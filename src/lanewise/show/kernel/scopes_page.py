"""A page of scopes: for each kernel a small timeline of one block, a row for each warp. One file, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lanewise.machine_code.sampled.scopes import ScopedKernel, Span
from lanewise.show.safe_text import clean

__all__ = ["scopes_page"]

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")
_WIDTH, _ROW, _LEFT, _LEVEL = 1000, 22, 70, 5
_MOST_SPANS = 4000
_STYLE = (
    ":root { color-scheme: light dark; } body { font: 14px/1.45 system-ui, sans-serif; margin: 1rem 1.5rem; } "
    "h2 { font-size: 1.05rem; overflow-wrap: anywhere; } svg { max-width: 100%; height: auto; } "
    "text { font: 11px ui-monospace, monospace; fill: currentColor; } i { display: inline-block; width: .8em; "
    "height: .8em; margin: 0 .3em 0 1em; } td, th { padding: 0 .8rem 0 0; text-align: right; }"
)


def scopes_page(title: str, kernels: Sequence[ScopedKernel]) -> str:
    """The page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body><h1>{_safe(title)}</h1>"
        f"{''.join(map(_section, kernels))}</body></html>\n"
    )


def _section(kernel: ScopedKernel) -> str:
    colour = {scope.name: _COLOURS[at % len(_COLOURS)] for at, scope in enumerate(kernel.scopes)}
    key = "".join(f'<i style="background:{colour[one.name]}"></i>{_safe(one.name)}' for one in kernel.scopes)
    rows = "".join(
        f"<tr><td>{_safe(one.name)}</td><td>{round(100 * one.share)} %</td><td>{one.clocks:,.0f}</td>"
        f"<td>{one.longest:,.0f}</td><td>{one.spans:,}</td></tr>"
        for one in kernel.scopes
    )
    head = "<tr><th>scope</th><th>share</th><th>mean clocks</th><th>longest</th><th>times</th></tr>"
    table = f"<table>{head}{rows}</table>"
    return f"<section><h2>{_safe(kernel.name)}</h2>{table}<p>{key}</p>{_timeline(kernel, colour)}</section>"


def _timeline(kernel: ScopedKernel, colour: dict[str, str]) -> str:
    spans = kernel.drawn[:_MOST_SPANS]
    begin = min(span.begin for span in spans)
    scale = (_WIDTH - _LEFT) / (max(span.begin + span.clocks for span in spans) - begin or 1.0)
    row_of = {warp: row for row, warp in enumerate(sorted({span.warp for span in spans}))}
    bars = "".join(_bar(span, spans, row_of[span.warp], begin, scale, colour[span.scope]) for span in spans)
    names = "".join(f'<text x="0" y="{_ROW * row + 14}">warp {warp}</text>' for warp, row in row_of.items())
    block = f"block {spans[0].block}, {round((_WIDTH - _LEFT) / scale):,} clocks"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_ROW * len(row_of)}" role="img" aria-label="Timeline of {block}">{names}{bars}</svg>'
        f"<p>{block}</p>"
    )


def _bar(span: Span, spans: Sequence[Span], row: int, begin: float, scale: float, colour: str) -> str:
    end = span.begin + span.clocks
    inside = sum(
        one.warp == span.warp and one.begin <= span.begin and end <= one.begin + one.clocks and one.clocks > span.clocks
        for one in spans
    )
    x, width = _LEFT + (span.begin - begin) * scale, max(0.5, span.clocks * scale)
    height = max(3, _ROW - 4 - _LEVEL * inside)
    title = f"{_safe(span.scope)}: {span.clocks:,.0f} clocks"
    y = _ROW * row + _ROW - 2 - height
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"><title>{title}</title></rect>'
    )


def _safe(text: str) -> str:
    return escape(clean(text, 300))
