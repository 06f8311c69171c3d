"""The Report on one screen: what the run is bound by, whether that can be trusted, the first things to do, where to go on.

At most `LINES` lines at any width of 60 characters or more: what does not fit ends with `…`, and `--full` has all of it.
"""

from __future__ import annotations

import textwrap

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lanewise.report.gain import cost_text, gain_text, saves_text
from lanewise.report.model import Finding, Report
from lanewise.show.report.markdown import location_text
from lanewise.show.report.picks import (
    KERNELS,
    NOTHING_SPEAKS_AGAINST,
    bound_by,
    busiest,
    command,
    doubts,
    first_change,
    longest_kernels,
    step_sentence,
    to_do,
    vouched_for,
)
from lanewise.show.report.terminal import TRY_ON_THE_CPU, class_bar, head_facts, way_on
from lanewise.show.report.terminal_table import AtWidth
from lanewise.show.safe_text import clean

__all__ = ["LINES", "one_screen", "print_one_screen"]

LINES = 25
"""What a terminal of the usual height shows, the prompt included."""
_FINDINGS = 3
_LEAST = 3
"""Lines of a finding: what, how much, the change."""
_LITTLE = 0.1
"""Less than this share of the step is little to gain."""
_DOUBTS = 3
"""Where there is little to do, there is room for what is not known."""


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
        *_lines(bound_by(report), width, most=3, style="bold"),
    ]
    shares = {name: share for name, share in report.regime.shares.items() if share >= 0.02}
    if shares:
        parts.append(class_bar(shares, width))
    if step := step_sentence(report, brief=True):
        parts += _lines(step, width, indent=2, style="dim")
    if cost := cost_text(report.cost):
        parts += _lines(cost, width, indent=2, style="dim")
    on = to_do(report)
    parts += _trust(report, width, 1 if len(on) > 1 else _DOUBTS)
    parts.append(Text())
    most = Group(*parts, Text(), *_next(report, len(on), width))
    room = LINES - 1 - len(Console(width=width).render_lines(most))  # the prompt takes one
    if not on:
        parts += _without_findings(report, width, room)
    least = _LEAST + any(saves_text(finding) for finding in on[:_FINDINGS])
    little = on and sum(finding.recoverable_us_per_step for finding in on) < _LITTLE * report.regime.step_us
    rest = _rest(report, width, room - least * min(len(on), 2)) if little else []
    room -= len(rest)
    shown = on[: max(1, min(_FINDINGS, room // least))]
    parts += _findings(shown, width, room) if shown else []
    parts += rest
    return Group(*parts, Text(), *_next(report, len(on) - len(shown), width))


def _trust(report: Report, width: int, most: int) -> list[Text]:
    """The gravest of what speaks against the numbers, and how many more do."""
    said = doubts(report)
    if not said:
        return _lines(f"✓ {NOTHING_SPEAKS_AGAINST}", width, indent=2, style="green") if vouched_for(report) else []
    lines: list[Text] = []
    for at, text in enumerate(said[:most], 1):
        more = f" (and {len(said) - at} more: --full)" if at == most < len(said) else ""
        lines += _lines(f"! {text}", width, most=2, indent=2, style="yellow", end=more)
    return lines


def _findings(shown: list[Finding], width: int, room: int) -> list[Text]:
    """Each in its share of the lines; what some leave over goes to the first that can say more with it."""
    drawn = [_finding(number, finding, width, room // len(shown)) for number, finding in enumerate(shown, 1)]
    for at in [*range(len(shown))] * 2:
        left = room - sum(map(len, drawn))
        for more in range(1, left + 1):
            longer = _finding(at + 1, shown[at], width, len(drawn[at]) + more)
            if len(longer) > len(drawn[at]):
                drawn[at] = longer
                break
    return [line for lines in drawn for line in lines]


def _finding(number: int, finding: Finding, width: int, room: int) -> list[Text]:
    """What, how much and where, and the change, in `room` lines or less: three at least."""
    where, gain, code = clean(location_text(finding), 120), gain_text(finding), f" [{finding.code}]"
    saves = saves_text(finding)
    if saves and len(gain) + len(saves) + len(code) + 5 <= width:
        gain, saves = f"{gain}; {saves}", ""
    if where and len(gain) + len(where) + len(code) + 9 <= width:
        gain, where = f"{gain} · at {where}", ""
    most = 2 if room > _LEAST + bool(saves) else 1
    lines = _lines(f"{number}  {clean(finding.title, 500)}", width, most=most, hang=3, style="bold")
    lines += _lines(gain, width, indent=3, style="cyan", end=code)
    if saves and len(lines) + 1 < room:
        lines += _lines(saves, width, indent=3, style="cyan")
    if where and len(lines) + 1 < room:
        lines += _lines(f"at {where}", width, indent=3, style="dim")
    if change := first_change(finding):
        lines += _lines(f"Fix: {change}", width, most=max(1, min(3, room - len(lines))), indent=3)
    return lines


def _without_findings(report: Report, width: int, room: int) -> list[Text]:
    found = busiest(report)
    if found is None:
        way = _lines(way_on(report), width, most=max(1, min(4, room)))
        return [*way, *_kernels(report, width, room - len(way))]
    title, rows = found
    way = _lines(TRY_ON_THE_CPU, width, most=2)
    return [*_listed(title, rows, width, room - len(way)), *way]


def _rest(report: Report, width: int, room: int) -> list[Text]:
    """Where the findings give little: what the most of the step is, and what to do about that."""
    if report.regime.name == "device-bound":
        return _kernels(report, width, room)
    way = way_on(report, none="Most of the step goes into something else. ")
    return [Text(), *_lines(way, width, most=min(3, room - 1))] if room >= _LEAST else []


def _kernels(report: Report, width: int, room: int) -> list[Text]:
    """What the device computes, where that is what takes the time."""
    rows = _listed(KERNELS, longest_kernels(report), width, room - 1)
    return [Text(), *rows] if rows else []


def _listed(title: str, rows: list[tuple[list[str], str]], width: int, room: int) -> list[Text]:
    """A heading and as many rows as there is room for; nothing where that is none: a heading alone says nothing."""
    shown = [
        line
        for numbers, name in rows[: max(0, room - 1)]
        for line in _lines(f"{' '.join(number.rjust(9) for number in numbers)}  {name}", width, indent=1)
    ]
    return [*_lines(f"{title}:", width, style="bold"), *shown] if shown else []


def _next(report: Report, more: int, width: int) -> list[Text]:
    count = f"{more} more finding{'s' * (more > 1)}, " if more > 0 else ""
    explain = command("explain", report)
    if not explain:
        return _lines(f"{count}evidence and tables: --full", width, style="dim")
    lines = [f"{count}evidence and tables:  {explain} --full"]
    if len(lines[0]) > width:
        lines = [f"{count}evidence and tables:", *_broken(f"  {explain} --full", width)]
    page = f"on a page, with the timeline:  {command('view', report)}"
    if report.source.contexts:
        page = f"the contexts themselves:  {command('tree', report)}"
    return [Text(line, style="dim", no_wrap=True) for line in [*lines, *([page] if len(page) <= width else [])]]


def _broken(line: str, width: int) -> list[str]:
    """A command on as many lines as it needs; what is copied from all of them runs, unless the path is in quotes."""
    if len(line) <= width:
        return [line]
    command, option = line.rsplit(" ", 1)
    room = width - len(" \\")
    pieces = [command[at : at + room] for at in range(0, len(command), room)]
    # A shell takes out a backslash at the end of a line, in the middle of a word, too.
    joint = "" if "'" in command else "\\"
    whole = f"{pieces[-1]} {option}"
    last = [whole] if len(whole) <= width else [f"{pieces[-1]} \\", f"    {option}"]
    return [*(piece + joint for piece in pieces[:-1]), *last]


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
