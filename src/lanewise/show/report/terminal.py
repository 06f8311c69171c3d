"""The Report in a terminal: a sentence with its numbers, then the evidence, then what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lanewise.measure.kernel_names import short_name
from lanewise.report.gain import cost_text, gain_text, helps, saves_text, why_not
from lanewise.report.model import Block, Check, Finding, Report, Stack, TableBlock, TextBlock
from lanewise.report.quantity import format_quantity
from lanewise.show.report.markdown import location_text
from lanewise.show.report.picks import command, step_sentence
from lanewise.show.report.terminal_table import AtWidth, table_renderable
from lanewise.show.safe_text import clean

__all__ = ["TRY_ON_THE_CPU", "class_bar", "head_facts", "inside_block", "print_report", "render", "way_on"]

_LEVEL = {"bad": ("✗", "bold red"), "warn": ("!", "yellow"), "info": ("·", "dim"), "ok": ("✓", "green")}
_CLASS_STYLE = {
    "compute": ("device computes", "green", "█"),
    "transfer": ("copies", "yellow", "▓"),
    "host": ("waits for the host", "red", "▒"),
    "communication": ("communication", "magenta", "▓"),
    "dependency": ("waits for other work", "blue", "░"),
    "unknown": ("cannot be told", "white", "·"),
}
_BAR_WIDTH = 60
_HOST_TOO = 0.2
_MANY = 3
"""Checks: more that found nothing for the same reason stand on one line."""
TRY_ON_THE_CPU = (
    "lanewise.optimize tries other numbers of threads, torch.compile and more on this machine, and keeps what is measured "
    "to be faster."
)
_ON_THE_CPU = (
    "The diagnoses speak of the time that a GPU loses; this run has none. What the CPU's time goes to stands below. "
    f"{TRY_ON_THE_CPU}"
)


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print a report. `verbose` adds every check that found nothing and why."""
    console.print(render(report, verbose=verbose))


def render(report: Report, *, verbose: bool = False) -> RenderableType:
    """The report as a rich renderable."""
    parts: list[RenderableType] = [_head(report), Text(), *_verdict(report), Text(), _heading("Can you trust it?")]
    parts += _trust(report)
    parts += _findings(report)
    parts += _steps(report)
    if report.chain is not None:
        parts += [Text(), _heading("How a kernel gets started"), _indented(table_renderable(report.chain, max_rows=24))]
    parts += _tables(report)
    parts += _footer(report, verbose)
    return Group(*parts)


def _head(report: Report) -> Text:
    facts = (" · ".join(head_facts(report)), "dim")
    return Text.assemble((clean(report.source.path, 90), "bold"), "\n", facts)


def head_facts(report: Report) -> list[str]:
    """What was recorded: the device, events, steps."""
    source = report.source
    of_tree = bool(source.contexts)
    none = "no GPU in this tree" if of_tree else "no GPU in this trace"
    unnamed = "a GPU that the file does not name" if source.devices else none
    facts = [clean(source.device, 60) or unnamed]
    if source.devices > 1:
        facts.append(f"{source.devices} devices")
    facts.append(
        f"a tree of {source.contexts:,} contexts" if of_tree else f"{source.events:,} event{'s' * (source.events != 1)}"
    )
    if report.steps.count:
        left_out = 0 if of_tree else report.steps.count - len(report.steps.steady)
        facts.append(
            f"{report.steps.count:,} step{'s' * (report.steps.count > 1)}"
            + (f" ({left_out} left out)" if left_out else "")
        )
    else:
        facts.append(
            "no steps seen: the whole collection counts as one"
            if of_tree
            else "no steps marked: one region over the whole recording"
        )
    return facts


def _verdict(report: Report) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(clean(report.verdict, 700), style="bold")]
    shares = {name: share for name, share in report.regime.shares.items() if share > 0.004}
    if shares:
        lines.append(AtWidth(lambda width: class_bar(shares, width)))
    regime = report.regime
    if step_sentence(report):
        note = f"  {step_sentence(report)}"
        if regime.shares and regime.as_recorded != regime.name:
            note += f", which would look {regime.as_recorded}"
        lines.append(Text(note, style="dim"))
    if cost := cost_text(report.cost):
        lines.append(Text(f"  {cost}", style="dim"))
    lines += [_indented(Text(clean(str(statement), 500), style="dim")) for statement in report.statements]
    return lines


def inside_block(inside: Sequence[TextBlock]) -> RenderableType:
    """What was sampled inside of kernels, below a report."""
    return Group(
        Text(), _heading("Inside its kernels"), *(_indented(Text(clean(str(statement), 700))) for statement in inside)
    )


def class_bar(shares: Mapping[str, float], width: int) -> RenderableType:
    """The classes of a step's time as a bar in that many characters, and below it what is what."""
    width = min(_BAR_WIDTH, width - 8)
    bar, legend = Text("  "), Text("  ", style="dim")
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        label, colour, block = _CLASS_STYLE[name]
        bar.append(block * max(1, round(share * width)), style=colour)
        legend.append(f"{block} ", style=colour)
        legend.append(f"{label} {format_quantity('share', share)}   ")
    return Group(bar, legend)


def _trust(report: Report) -> list[RenderableType]:
    validity = (finding for finding in report.findings if finding.kind == "validity")
    lines = [_line("!", "yellow", f"{finding.code}  {finding.title}") for finding in validity]
    for note in report.health:
        mark, style = _LEVEL[note.level]
        lines.append(_line(mark, style, note.text))
    return lines


def _line(mark: str, style: str, text: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(f"  {mark}", style=style), Text(clean(text, 600)))
    return grid


def _steps(report: Report) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if report.steps.count > 1:
        parts.append(_indented(table_renderable(_narrow(report.steps.table), max_rows=12)))
    if report.steps.gaps is not None and _shows_gaps(report):
        parts.append(_indented(table_renderable(report.steps.gaps)))
    return [Text(), _heading("The steps"), *_spaced(parts)] if parts else []


def _spaced(parts: list[RenderableType]) -> list[RenderableType]:
    """The same parts with a blank line between them."""
    return [part for i, one in enumerate(parts) for part in ((Text(), one) if i else (one,))]


def _shows_gaps(report: Report) -> bool:
    """The gap table speaks of host time: shown where the host binds or the first step stands out."""
    few = report.steps.gaps is not None and len(report.steps.gaps.rows) <= 24
    return few and (report.regime.code == "REG101" or any(f.code == "MEA101" for f in report.findings))


def _findings(report: Report) -> list[RenderableType]:
    shown = [f for f in report.findings if f.kind not in {"validity", "regime"}]
    on = [f for f in shown if helps(f)]
    rest = [f for f in shown if f not in on]
    parts: list[RenderableType] = [Text(), _heading("What to do, most to gain first" if on else "What to do")]
    if not on and "cpu" in report.tables:
        parts.append(_indented(Text(_ON_THE_CPU)))
    elif not on:
        parts.append(_indented(Text(way_on(report))))
    for number, finding in enumerate(on, 1):
        parts += [_finding(number, finding), Text()]
    if rest:
        parts.append(_heading("Also seen"))
        for finding in rest:
            parts.append(_line("·", "dim", f"{finding.code}  {finding.title} ({why_not(finding)})"))
    return parts


def way_on(report: Report, none: str = "No single fix would make the step measurably shorter. ") -> str:
    """What to try where no finding gives back anything, which `none` says."""
    # Of a mixed run the findings are the way, but for what waits for the host in it.
    speaks = report.regime.name != "mixed" or report.regime.shares.get("host", 0.0) >= _HOST_TOO
    way = next((f.fix for f in report.findings if f.kind == "regime" and speaks), "")
    if report.regime.name == "undetermined":
        return f"What would help cannot be told from this recording. To find out, {way}" if way else ""
    return f"{none}Try: {way}" if way else none.rstrip()


def _finding(number: int, finding: Finding) -> RenderableType:
    head = Text.assemble((f"  {number}  ", "bold"), (f"{finding.code} ", "bold cyan"), (finding.name, "cyan"))
    if finding.recoverable_us_per_step > 0:
        saves = saves_text(finding)
        head.append(f"   {gain_text(finding)}{f'; {saves}' if saves else ''}", style="bold")
        if finding.confidence != "high":
            head.append(f" ({finding.confidence} confidence)", style="dim")
    body: list[RenderableType] = [Text(clean(finding.title, 500))]
    where = location_text(finding)
    if where:
        body.append(Text.assemble(("at ", "dim"), (clean(where, 200), "")))
    body += [_block(block) for block in finding.evidence[:3]]
    if finding.fix:
        body.append(Text.assemble(("Fix: ", "bold"), finding.fix))
    if finding.verify:
        body.append(Text.assemble(("Verify: ", "bold"), finding.verify))
    return Group(head, Padding(Group(*body), (0, 0, 0, 5)))


def _block(block: Block) -> RenderableType:
    match block:
        case TableBlock():
            return table_renderable(block, max_rows=6)
        case TextBlock():
            return Text(clean(str(block), 500))
        case Stack():
            return Text(f"{clean(block.title)}: " + " > ".join(clean(frame, 60) for frame in block.frames), style="dim")


def _tables(report: Report) -> list[RenderableType]:
    tables: list[RenderableType] = []
    order = ("functions", "cpu") if "cpu" in report.tables else ("kernels", "operators", "api", "copies")
    keep = {
        "functions": ("function", "inside", "calls", "time", "share"),
        "cpu": ("operator", "shapes", "dtype", "calls", "time", "share", "flop_rate", "line"),
        "kernels": ("name", "family", "count", "total", "share", "median"),
        "operators": ("name", "count", "host_self", "host_total", "device_total"),
        "api": ("name", "role", "count", "total", "median", "max"),
        "copies": ("name", "count", "total", "bytes", "bandwidth", "call_time"),
    }
    for key in order:
        block = report.tables.get(key)
        if block is None:
            continue
        columns = [column for column in block.columns if column.key in keep[key]]
        rows = [{**row, "name": short_name(str(row["name"]))} for row in block.rows] if key == "kernels" else block.rows
        most = 10 if key == "cpu" else 5
        tables.append(_indented(table_renderable(TableBlock(block.title, columns, rows, block.omitted), max_rows=most)))
    return [Text(), _heading("What ran"), *_spaced(tables)] if tables else []


def _footer(report: Report, verbose: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text()]
    needs = [c for c in report.checks if c.status == "needs_capture"]
    errors = [c for c in report.checks if c.status == "error"]
    if needs:
        parts.append(_heading("To know more, record"))
        parts += [_line("·", "dim", f"{c.code} {c.name}: {c.reason}") for c in needs]
        parts.append(Text())
    parts += [_line("✗", "bold red", f"{c.code} {c.name}: {c.reason}") for c in errors]
    clear = [c for c in report.checks if c.status in {"clear", "not_applicable"} and not c.code.startswith("REG")]
    if verbose:
        parts.append(_heading("Checked, and not found"))
        parts += [_line("·", "dim", text) for text in _by_reason(clear)]
    elif clear:
        which = "speak of a GPU's time, or found nothing" if "cpu" in report.tables else "found nothing"
        if report.source.contexts:
            which += ", or need a trace"
        parts.append(Text(f"  {len(clear)} further checks {which} (-v lists them)", style="dim"))
    verbs = ("tree",) if report.source.contexts else ("table", "chain")
    if commands := " · ".join(filter(None, (command(verb, report) for verb in verbs))):
        parts.append(Text(f"  next: {commands} · lanewise rule CODE", style="dim"))
    return parts


def _by_reason(checks: Sequence[Check]) -> list[str]:
    """A line for each check, or for all that have the same reason where these are many."""
    reasons: dict[str, list[Check]] = {}
    for check in checks:
        reasons.setdefault(check.reason or check.status.replace("_", " "), []).append(check)
    lines: list[str] = []
    for reason, same in reasons.items():
        if len(same) > _MANY:
            lines.append(f"{', '.join(check.code for check in same)}: {reason}")
        else:
            lines += [f"{check.code} {check.name}: {reason}" for check in same]
    return lines


def _heading(text: str) -> Text:
    return Text(text, style="bold underline")


def _indented(renderable: RenderableType) -> RenderableType:
    return Padding(renderable, (0, 0, 0, 2))


def _narrow(block: TableBlock) -> TableBlock:
    """The step table without the classes, which the bar already shows."""
    dropped = {"transfer", "communication", "dependency", "unknown", "compute", "host"}
    return TableBlock(block.title, [c for c in block.columns if c.key not in dropped], block.rows, block.omitted)
