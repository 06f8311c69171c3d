"""Verdicts on kernels in a terminal: what limits each, what can be done, and where in the source its work is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from lanewise.machine_code.disassembly import Place
from lanewise.machine_code.limiter import Limiter, Verdict
from lanewise.machine_code.mended import Gain
from lanewise.report.quantity import format_quantity
from lanewise.show.safe_text import clean

__all__ = ["gain_text", "limit_text", "place_text", "render_verdicts"]

_OPCODES, _LINES = 6, 4
_KEPT_OUT_BY = {
    "registers": "because of its registers",
    "shared": "because of its shared memory",
    "warps": "as many as there is room for",
    "blocks": "as many blocks as one may hold",
}


def render_verdicts(verdicts: Sequence[Verdict], gains: Sequence[Gain | None]) -> RenderableType:
    """One paragraph for each kernel, under the file that it is from."""
    parts: list[RenderableType] = []
    for file, group in groupby(zip(verdicts, gains, strict=True), key=lambda pair: pair[0].kernel.file):
        parts.append(Text(clean(str(file), 110), style="dim"))
        for verdict, gain in group:
            parts += [
                Text(clean(verdict.kernel.code.name, 110), style="bold"),
                Padding(_paragraph(verdict, gain), (0, 0, 1, 2)),
            ]
    return Group(*parts)


def _paragraph(verdict: Verdict, gain: Gain | None) -> RenderableType:
    lines: list[RenderableType] = []
    # What a good kernel of its kind is limited by is worth saying where nothing else is wrong.
    shown = [limit for limit in verdict.limits if limit.defect] or list(verdict.limits)
    for number, limit in enumerate(shown):
        lines += _limit(limit, first=number == 0)
    if gain is not None:
        lines.append(Text(gain_text(gain)))
    lines += [Text(_resources(verdict), style="dim"), Text(_stretch(verdict), style="dim")]
    return Group(*lines)


def limit_text(limit: Limiter, *, first: bool) -> str:
    """What limits a kernel, and where."""
    at = f" ({place_text(limit.place)})" if limit.place is not None else ""
    lead = "Limited by" if first else "Also"
    return f"{lead} {limit.name}: {limit.why}{at}."


def _limit(limit: Limiter, *, first: bool) -> list[RenderableType]:
    style = "" if not limit.defect else "bold" if first else ""
    lines: list[RenderableType] = [Text(limit_text(limit, first=first), style=style)]
    if limit.advice:
        lines.append(Padding(Text(f"Fix: {limit.advice}."), (0, 0, 0, 2)))
    return lines


def gain_text(gain: Gain) -> str:
    """What mending would give, as a sentence."""
    text = f"With that fixed, it would be about {gain.times:.2g} times as fast"
    if not gain.seconds:
        return f"{text}."
    now, then = (format_quantity("time", 1e9 * seconds) for seconds in (gain.seconds, gain.mended_seconds))
    return f"{text}: {then} a launch instead of {now}."


def _resources(verdict: Verdict) -> str:
    kernel, code = verdict.kernel, verdict.kernel.code
    target = f"compute capability {code.capability[0]}.{code.capability[1]}; " if code.capability != (0, 0) else ""
    parts = [f"{kernel.registers} registers", f"{kernel.shared:,} bytes of shared memory"]
    if kernel.stack:
        parts.append(f"{kernel.stack} bytes of stack per thread")
    if kernel.threads:
        parts.append(f"{kernel.threads} threads per block")
    text = target + ", ".join(parts)
    if verdict.resident:
        why = _KEPT_OUT_BY.get(verdict.kept_out_by, "")
        blocks = "1 block" if verdict.resident == 1 else f"{verdict.resident} blocks"
        text += f": {blocks} on a multiprocessor, {round(100 * verdict.occupancy)} % of its warps" + (
            f", {why}" if why else ""
        )
    return text


def _stretch(verdict: Verdict) -> str:
    features = verdict.features
    most = ", ".join(f"{number} {name}" for name, number in features.count.most_common(_OPCODES))
    loops = len(features.loops)
    if features.loop is None:
        what = "no loop" if not loops else f"no loop of {loops} moves data or computes"
        head = f"{what}; all {features.size} instructions"
    else:
        head = f"hottest of {loops} loops" if loops > 1 else "its loop"
        head += f", {features.size} of {len(verdict.kernel.code.instructions)} instructions"
    lines = ", ".join(f"{place_text(place)} ({number})" for place, number in features.lines[:_LINES])
    return f"{head}: {most}" + (f"; by line: {lines}" if lines else "")


def place_text(place: Place) -> str:
    """A line of source, and where it was inlined."""
    here = f"{clean(PurePath(place.file).name, 60)}:{place.line}"
    return here + (f", inlined at {clean(PurePath(place.caller).name, 60)}:{place.caller_line}" if place.caller else "")
