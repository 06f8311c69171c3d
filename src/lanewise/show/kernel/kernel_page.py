"""A page of kernels: their source with heat beside their instructions. One file, no scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path, PurePath

from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.disassembly import Instruction, Place
from lanewise.machine_code.limiter import Verdict
from lanewise.machine_code.mended import Gain
from lanewise.machine_code.sampled.stalls import Stalls
from lanewise.machine_code.stall_reasons import NO_WAITS
from lanewise.show.kernel.kernel_text import gain_text, limit_text, place_text
from lanewise.show.kernel.stalls_text import summary_text, wait_text
from lanewise.show.safe_text import clean

__all__ = ["Shown", "kernel_page", "of_stalls", "of_verdict"]

_ROUNDS = 8.0
"""How often a loop is taken to go round for each round of what is around it, where nothing was sampled."""
_MOST_INSTRUCTIONS = 4000
_SOURCES = frozenset({".py", ".cu", ".cuh", ".h", ".hh", ".hpp", ".c", ".cc", ".cpp", ".cxx", ".inl"})
"""Nothing else is read: the code says which files it is from, and may be a stranger's."""
_AROUND = 3
"""Lines of source around those that the code is from."""

_STYLE = """
:root { color-scheme: light dark; --heat: 220 60 20; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1rem 1.5rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .15rem 0; max-width: 75rem; }
.sides { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1rem; margin-top: .6rem; }
.side { max-height: 75vh; overflow: auto; border: 1px solid #8885; }
table { border-collapse: collapse; font: 12px/1.5 ui-monospace, monospace; width: 100%; }
td { padding: 0 .5rem; white-space: pre; vertical-align: top; }
td.n { text-align: right; opacity: .65; }
tr:target { outline: 2px solid #48f; }
a { color: inherit; }
@media (max-width: 60rem) { .sides { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A kernel on the page.

    Attributes:
        name: its name. text: what is said of it. kernel: its code, None if unknown.
        heat: share of the whole by address of an instruction. notes: what is said of one, by address.
    """

    name: str
    text: tuple[str, ...]
    kernel: Kernel | None
    heat: Mapping[int, float]
    notes: Mapping[int, str] = field(default_factory=dict[int, str])


def of_verdict(verdict: Verdict, gain: Gain | None) -> Shown:
    """By its code alone: heat is how often an instruction is taken to run, a loop some times for each round around it."""
    instructions = verdict.kernel.code.instructions
    depth = [
        max((loop.depth for loop in verdict.features.loops if at in loop), default=0) for at in range(len(instructions))
    ]
    weights = {one.address: _ROUNDS**level for one, level in zip(instructions, depth, strict=True) if one.name != "NOP"}
    every = sum(weights.values()) or 1.0
    shown = [limit for limit in verdict.limits if limit.defect] or list(verdict.limits)
    text = [limit_text(limit, first=number == 0) for number, limit in enumerate(shown)]
    text += [f"Fix: {limit.advice}." for limit in shown[:1] if limit.advice] + ([gain_text(gain)] if gain else [])
    heat = {address: weight / every for address, weight in weights.items()}
    return Shown(verdict.kernel.code.name, tuple(text), verdict.kernel, heat)


def of_stalls(stalls: Stalls) -> Shown:
    """By its samples: heat is their share, and beside an instruction stands what warps wait for there."""
    heat: dict[int, float] = {}
    notes: dict[int, str] = {}
    for one in stalls.instructions:
        heat[one.at.address] = one.number / stalls.number
        waits = next((name for name in one.reasons if name not in NO_WAITS), "")
        notes[one.at.address] = wait_text(waits) if waits else ""
    text = (summary_text(stalls), *([f"Its code is not shown: {stalls.missing}."] if stalls.missing else []))
    return Shown(stalls.name, text, stalls.kernel, heat, notes)


def kernel_page(title: str, kernels: Sequence[Shown]) -> str:
    """The page."""
    body = "".join(_section(number, one) for number, one in enumerate(kernels))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{_safe(title)}</h1>{body}</body></html>\n"
    )


def _section(number: int, one: Shown) -> str:
    text = "".join(f"<p>{_safe(line)}</p>" for line in one.text)
    head = f"<section><h2>{_safe(one.name)}</h2>{text}"
    if one.kernel is None:
        return f"{head}</section>"
    code = f'<div class="side" tabindex="0" aria-label="Instructions">{_instructions(number, one.kernel, one)}</div>'
    source = f'<div class="side" tabindex="0" aria-label="Source">{_source(number, one.kernel, one)}</div>'
    return f'{head}<div class="sides">{source}{code}</div></section>'


def _source(number: int, kernel: Kernel, one: Shown) -> str:
    heat = Counter[tuple[str, int]]()
    for instruction in kernel.code.instructions:
        if instruction.place is not None:
            heat[instruction.place.file, instruction.place.line] += one.heat.get(instruction.address, 0.0)  # type: ignore[misc]
    rows: list[str] = []
    for file in dict.fromkeys(file for file, _ in heat):
        used = {line: share for (of, line), share in heat.items() if of == file}
        lines = _lines_of(file, kernel.file)
        rows.append(f'<tr><td colspan="3">{_safe(PurePath(file).name)}</td></tr>')
        first, last = max(1, min(used) - _AROUND), max(used) + _AROUND
        for at in range(first, min(last, len(lines)) + 1) if lines else sorted(used):
            text = lines[at - 1] if lines else ""
            to = f'<a href="#{_anchor(number, file, at)}">{at}</a>' if at in used else str(at)
            share = used.get(at, 0.0)
            rows.append(f'<tr{_tint(share)}><td class="n">{to}</td>{_share(share)}<td>{_safe(text)}</td></tr>')
    return f"<table>{''.join(rows)}</table>" if rows else "<p>Its code has no lines of source.</p>"


def _instructions(number: int, kernel: Kernel, one: Shown) -> str:
    rows: list[str] = []
    code = kernel.code.instructions
    # A line's link goes to where most of it is spent.
    hottest: dict[str, Instruction] = {}
    for instruction in sorted(code[:_MOST_INSTRUCTIONS], key=lambda each: -one.heat.get(each.address, 0.0)):
        if instruction.place is not None:
            hottest.setdefault(_anchor(number, instruction.place.file, instruction.place.line), instruction)
    for instruction in code[:_MOST_INSTRUCTIONS]:
        place = instruction.place
        anchor = "" if place is None else _anchor(number, place.file, place.line)
        mark = f' id="{anchor}"' if hottest.get(anchor) is instruction else ""
        share = one.heat.get(instruction.address, 0.0)
        guard = f"@{instruction.guard} " if instruction.guard else ""
        text = f"{guard}{instruction.opcode} {', '.join(instruction.operands)}"
        where = "" if place is None else place_text(Place(place.file, place.line))
        rows.append(
            f'<tr{mark}{_tint(share)}><td class="n">{instruction.address:04x}</td>{_share(share)}<td>{_safe(text)}</td>'
            f"<td>{_safe(where)}</td><td>{_safe(one.notes.get(instruction.address, ''))}</td></tr>"
        )
    if len(code) > _MOST_INSTRUCTIONS:
        rows.append(f'<tr><td colspan="5">{len(code) - _MOST_INSTRUCTIONS:,} more are not shown</td></tr>')
    return f"<table>{''.join(rows)}</table>"


def _lines_of(file: str, beside: Path) -> list[str]:
    """Lines of a source file, where the compiler says that it is or beside the code; none if it cannot be read."""
    for path in (Path(file), beside.parent / PurePath(file).name):
        if path.suffix.lower() not in _SOURCES:
            break
        try:
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError):
            continue
    return []


def _anchor(number: int, file: str, line: int) -> str:
    name = "".join(sign if sign.isalnum() else "-" for sign in PurePath(file).name)
    return f"k{number}-{name}-{line}"


def _tint(share: float) -> str:
    """The more of the whole, the redder; what has hardly any is left as it is."""
    strength = min(0.75, 1.2 * share**0.5)
    return f' style="background: rgb(var(--heat) / {strength:.2f})"' if share >= 0.002 else ""


def _share(share: float) -> str:
    return f'<td class="n">{f"{100 * share:.1f} %" if share >= 0.0005 else ""}</td>'


def _safe(text: str) -> str:
    return escape(clean(text, 400))
