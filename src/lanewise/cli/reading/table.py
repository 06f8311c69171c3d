"""`lanewise table`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import cache_option, console, json_option, open_trace, output_option, step_row
from lanewise.cli.outputs import deliver
from lanewise.cli.suggest import OneOf

if TYPE_CHECKING:
    from lanewise.diagnose.sections.section import Section
    from lanewise.report.model import TableBlock

__all__ = ["table"]

# As in lanewise.show.report.tables, which is loaded when a table is asked for.
_PROFILER = ("operators", "kernels", "api", "copies", "steps")
_MEASURES = ("roofline", "memory", "overlap", "queues", "cpu", "critical-path")
_PARTS = ("memory-steps", "memory-over-time", "queues-over-time", "critical-path-segments")


@click.command()
@click.argument("source", metavar="TRACE", required=False)
@click.argument("which", metavar="[TABLE]", type=OneOf([*_PROFILER, *_MEASURES, *_PARTS, "all"]), required=False)
@click.option(
    "-n", "--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="Rows per table."
)
@click.option("--sort", metavar="COLUMN", default=None, help="Sort by this column, largest first.")
@click.option(
    "--step", type=int, metavar="N", help="Step of the critical path, as recorded; default: the last steady one."
)
@click.option(
    "--snapshot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A memory snapshot of torch (torch.cuda.memory._dump_snapshot), with the trace or without one. It is read "
    "without running what a pickle can run.",
)
@json_option
@click.option("--format", "format_", type=click.Choice(["text", "md", "csv", "json"]), default="text")
@cache_option
@output_option
def table(
    source: str | None,
    which: str | None,
    limit: int,
    sort: str | None,
    step: int | None,
    snapshot: Path | None,
    as_json: bool,
    format_: str,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """The profiler's tables, and what else can be measured in a trace.

    \b
    operators, kernels, api, copies, steps   the profiler's; these by default
    roofline        operators by arguments: work, rates, shares of the card's peaks
    memory          the peak and who holds it; memory-steps, memory-over-time
    overlap         how computation, copies and communication overlap
    queues          launches ahead of the device by step; queues-over-time
    critical-path   what a step waits for, end to end; critical-path-segments
    cpu             of a run without a GPU: operators by arguments, with types, rates and lines
    all             all of them

    Count, total, mean, median, min, max, standard deviation. Device totals come from kernels, copies and sets alone; the
    synchronise that the profiler itself adds at the end is in the API table only. Work launched before the recording is
    in the kernel table, but in no operator.
    """
    from lanewise.errors import UsageError
    from lanewise.measure.facts import Facts
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import (
        Tables,
        cut_tables,
        measure_section,
        profiler_tables,
    )

    if source is None and snapshot is None:
        raise UsageError("which trace? lanewise table TRACE [TABLE], or --snapshot FILE")
    form = "json" if as_json else format_
    rows = None if form in {"json", "csv"} else limit
    sections: dict[str, Section] = {}
    blocks: dict[str, TableBlock] = {}
    if snapshot is not None:
        sections["snapshot"] = _snapshot(snapshot)
    if source is not None:
        facts = Facts(open_trace(source, cache=cache))
        at = step_row(facts.trace, step)
        wanted = _wanted(which, alone=snapshot is None)
        blocks = profiler_tables(facts, wanted, limit=rows, sort=sort)
        if facts.on_cpu and "operators" in blocks and rows is not None:
            blocks["operators"] = _of_the_host(blocks["operators"])
        sections |= {name: measure_section(facts, name, step=at) for name in wanted if name not in _PROFILER}
    for section in sections.values():
        blocks |= cut_tables(section.tables, limit=rows, sort=sort)
    if sort is not None and not blocks:
        raise UsageError(f"no table has a column {sort!r}")
    told = {name: section.statements for name, section in sections.items()}
    if form == "csv" and which in (None, "all") and snapshot is None:
        raise UsageError("csv holds one table: name it, for example `lanewise table TRACE kernels --format csv`")
    tables = Tables(source or str(snapshot), blocks, told)
    deliver("tables", form, (tables,), output, force, printed=lambda: print_sections(console(), sections, blocks))


def _of_the_host(block: TableBlock) -> TableBlock:
    """A table without the columns of a device, all zero where there is none."""
    from lanewise.report.model import TableBlock

    columns = [column for column in block.columns if not column.key.startswith("device_")]
    return TableBlock(block.title, columns, block.rows, block.omitted)


def _wanted(which: str | None, *, alone: bool) -> tuple[str, ...]:
    if which == "all":
        return (*_PROFILER, *_MEASURES)
    if which is not None:
        return (which,)
    return _PROFILER if alone else ("memory",)


def _snapshot(path: Path) -> Section:
    from lanewise.diagnose.sections.snapshot import snapshot_section
    from lanewise.measure.memory.snapshot import read_snapshot

    return snapshot_section(read_snapshot(path))
