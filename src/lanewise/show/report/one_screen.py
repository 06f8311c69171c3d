"""The Report on one screen: what the run is bound by, whether that can be trusted, the first things to do, where to go on.

At most `LINES` lines at any width of 60 characters or more: what does not fit ends with `…`, and `--full` has all of it.
"""

from __future__ import annotations

import re
import shlex
import textwrap

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lanewise.report.gain import gain_text, helps, step_text
from lanewise.report.model import Finding, Report
from lanewise.report.quantity import format_quantity
from lanewise.show.report.markdown import location_text
from lanewise.show.report.terminal import TRY_ON_THE_CPU, class_bar, head_facts, way_on
from lanewise.show.report.terminal_table import AtWidth
from lanewise.show.safe_text import cell, clean

__all__ = ["LINES", "one_screen", "print_one_screen"]

LINES = 25
"""What a terminal of the usual height shows, the prompt included."""
_FINDINGS = 3
_LEAST = 3
"""Lines of a finding: what, how much, the change."""
_FUNCTIONS = 6
_DOUBTS = 3
"""Where there is little to do, there is room for what is not known."""
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")


def print_one_screen(report: Report, console: Console) -> None:
    """Print the report, at most `LINES` lines of it."""
    console.print(one_screen(report))


def one_screen(report: Report) -> RenderableType:
    """The report as a rich renderable, in the width that it is given."""
    return AtWidth(lambda width: _drawn(report, width))


def _drawn(report: Report, width: int) -> RenderableType:
    parts: list[RenderableType] = [
        *_lines(clean(report.source.path, 200), width, style="bold"),
        *_lines(" · ".join(head_facts(report)), width, style="dim"),
        Text(),
        *_lines(_bound_by(report), width, most=3, style="bold"),
    ]
    shares = {name: share for name, share in report.regime.shares.items() if share >= 0.02}
    if shares:
        parts.append(class_bar(shares, width))
    if report.regime.step_us and (report.regime.shares or report.regime.unprofiled):
        took = step_text(report.regime, marked=bool(report.steps.count), watched=bool(report.source.contexts))
        parts += _lines(took, width, indent=2, style="dim")
    on = [finding for finding in report.findings if helps(finding)]
    parts += _trust(report, width, 1 if len(on) > 1 else _DOUBTS)
    parts.append(Text())
    most = Group(*parts, Text(), *_next(report, len(on), width))
    room = LINES - 1 - len(Console(width=width).render_lines(most))  # the prompt takes one
    shown = on[: max(1, min(_FINDINGS, room // _LEAST))]
    for number, finding in enumerate(shown, 1):
        parts += _finding(number, finding, width, room // len(shown))
    if not on:
        parts += _without_findings(report, width)[:room]
    return Group(*parts, Text(), *_next(report, len(on) - len(shown), width))


def _bound_by(report: Report) -> str:
    """The verdict without what to start with, which follows by itself."""
    regime = next((finding.title for finding in report.findings if finding.kind == "regime"), "")
    return clean(report.verdict if "cpu" in report.tables else regime or report.verdict, 700)


def _trust(report: Report, width: int, most: int) -> list[Text]:
    """The gravest of what speaks against the numbers, and how many more do."""
    bad, warn = ([note.text for note in report.health if note.level == level] for level in ("bad", "warn"))
    found = [f"{finding.title} ({finding.code})" for finding in report.findings if finding.kind == "validity"]
    said = [*bad, *found, *warn]
    if not said and report.regime.name == "undetermined":
        return []
    if not said:
        return _lines("✓ nothing speaks against these numbers", width, indent=2, style="green")
    lines: list[Text] = []
    for at, text in enumerate(said[:most], 1):
        more = f" (and {len(said) - at} more: --full)" if at == most < len(said) else ""
        lines += _lines(f"! {clean(text, 600)}", width, most=2, indent=2, style="yellow", end=more)
    return lines


def _finding(number: int, finding: Finding, width: int, room: int) -> list[Text]:
    """What, how much and where, and the change, in `room` lines or less: three at least."""
    title = _lines(f"{number}  {clean(finding.title, 500)}", width, most=2 if room > 3 else 1, hang=3, style="bold")
    where, gain, code = clean(location_text(finding), 120), gain_text(finding), f" [{finding.code}]"
    if where and len(gain) + len(where) + len(code) + 9 <= width:
        gain, where = f"{gain} · at {where}", ""
    lines = [*title, *_lines(gain, width, indent=3, style="cyan", end=code)]
    if where and len(lines) + 1 < room:
        lines += _lines(f"at {where}", width, indent=3, style="dim")
    if finding.fix:
        lines += _lines(f"Fix: {_first_sentence(finding.fix)}", width, most=max(1, min(3, room - len(lines))), indent=3)
    return lines


def _without_findings(report: Report, width: int) -> list[Text]:
    block = report.tables.get("functions") or report.tables.get("cpu")
    if block is None:
        return _lines(way_on(report), width, most=4)
    lines = _lines(f"{clean(block.title)}:", width, style="bold")
    keys = {column.key: column.type for column in block.columns}
    name = next((key for key in ("function", "operator") if key in keys), block.columns[0].key)
    for row in block.rows[:_FUNCTIONS]:
        numbers = [format_quantity(keys[key], row[key]).rjust(9) for key in ("time", "share") if key in keys]
        lines += _lines(f"{' '.join(numbers)}  {cell(row[name])}", width, indent=1)
    return [*lines, *_lines(TRY_ON_THE_CPU, width, most=2)]


def _next(report: Report, more: int, width: int) -> list[Text]:
    count = f"{more} more finding{'s' * (more > 1)}, " if more > 0 else ""
    if report.source.path == "standard input":
        return _lines(f"{count}evidence and tables: --full", width, style="dim")
    # In full and quoted: a command that is cut short does not run.
    path = shlex.quote(clean(report.source.path, 4096))
    lines = [f"{count}evidence and tables:  lanewise explain {path} --full"]
    if len(lines[0]) > width:
        command = f"  lanewise explain {path} --full"
        lines = [f"{count}evidence and tables:", *(command[at : at + width] for at in range(0, len(command), width))]
    page = f"on a page, with the timeline:  lanewise view {path}"
    if report.source.contexts:
        page = f"the contexts themselves:  lanewise tree {path}"
    return [Text(line, style="dim", no_wrap=True) for line in [*lines, *([page] if len(page) <= width else [])]]


def _first_sentence(text: str) -> str:
    return _SENTENCE.split(clean(text, 600), maxsplit=1)[0]


def _lines(
    text: str, width: int, *, most: int = 1, indent: int = 0, hang: int = 0, style: str = "", end: str = ""
) -> list[Text]:
    """A text in at most so many lines; the last one ends with `…` where there is more, and with `end` in any case."""
    room = max(20, width - indent)
    wrapped = textwrap.wrap(text, room, subsequent_indent=" " * hang, break_on_hyphens=False) or [""]
    fits = len(wrapped) <= most and len(wrapped[-1]) + len(end) <= room
    if not fits:
        last = " ".join(line.strip() if at else line for at, line in enumerate(wrapped[most - 1 :]))
        cut = room - len(end)
        if len(last) > cut:
            last = last[: cut - 1].rstrip() + "…"
        wrapped = [*wrapped[: most - 1], last]
    wrapped[-1] += end
    return [Text(" " * indent + line, style=style, no_wrap=True, overflow="ellipsis") for line in wrapped]
