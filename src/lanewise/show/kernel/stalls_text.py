"""What warps of a program's kernels waited for, in a terminal: per kernel and source line, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from lanewise.machine_code.sampled.samples import Samples
from lanewise.machine_code.sampled.stalls import Stalls
from lanewise.machine_code.stall_reasons import MEANINGS, NO_WAITS
from lanewise.report.quantity import format_quantity
from lanewise.show.kernel.kernel_text import limit_text, place_text
from lanewise.show.safe_text import clean

__all__ = ["render_stalls", "summary_text", "wait_text"]

_KERNELS, _LINES, _REASONS = 8, 4, 3
_WORTH = 0.02


def render_stalls(samples: Samples, stalls: Sequence[Stalls]) -> RenderableType:
    """One paragraph for each of the kernels that were sampled most."""
    number = sum(one.number for one in stalls)
    head = f"{number:,} samples in {format_quantity('time', 1e9 * samples.seconds)}"
    if samples.dropped:
        head += f"; {samples.dropped:,} more were lost"
    parts: list[RenderableType] = [Text(head, style="dim")]
    shown = [one for one in stalls if one.share >= _WORTH][:_KERNELS] or list(stalls[:1])
    for one in shown:
        parts += [
            Text.assemble((clean(one.name, 80), "bold"), f"  {_percent(one.share)} of the samples"),
            Padding(Group(*_paragraph(one)), (0, 0, 1, 2)),
        ]
    if len(shown) < len(stalls):
        parts.append(Text(f"{len(stalls) - len(shown)} more kernels, each with little", style="dim"))
    return Group(*parts)


def _paragraph(one: Stalls) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(summary_text(one))]
    for line in [line for line in one.lines if line.number >= _WORTH * one.number][:_LINES]:
        where = place_text(line.at)
        lines.append(Text(f"{_percent(line.number / one.number):>5}  {where}: {_waits(line.reasons, line.number)}"))
    if one.limits and one.limits[0].defect:
        lines.append(Text(limit_text(one.limits[0], first=True)))
        if not one.agrees:
            lines.append(Text("So its code says; what its warps wait for does not look like it.", style="dim"))
        lines.append(Padding(Text(f"Fix: {one.limits[0].advice}."), (0, 0, 0, 2)))
    if one.missing:
        lines.append(Text(f"At which lines is not known: {clean(one.missing, 160)}.", style="dim"))
    elif not one.lines:
        lines.append(Text("At which lines is not known: its code has none.", style="dim"))
    return lines


def summary_text(one: Stalls) -> str:
    """What the warps of a kernel wait for, as a sentence."""
    return f"Its warps wait {_waits(one.reasons, one.number)}."


def _waits(reasons: Mapping[str, int], number: int) -> str:
    found = [
        f"{wait_text(name)} ({_percent(count / number)})"
        for name, count in reasons.items()
        if name not in NO_WAITS and count >= _WORTH * number
    ]
    return ", ".join(found[:_REASONS]) or "hardly at all"


def wait_text(name: str) -> str:
    """What a warp waits for, in plain words; a reason that nobody has explained yet by its name."""
    return MEANINGS.get(name, f"for {clean(name, 40)}")


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"
