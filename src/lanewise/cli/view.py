"""`lanewise view`."""

from __future__ import annotations

from pathlib import Path

import click

from lanewise.cli.common import cache_option, emit, open_trace, output_option, step_time_option

__all__ = ["view"]


@click.command()
@click.argument("source", metavar="TRACE")
@click.option("--max-slices", type=click.IntRange(min=1), default=None, metavar="N",
              help="Slices in the timeline of the file; what is left out is said on the page.")
@step_time_option
@cache_option
@output_option
def view(source: str, max_slices: int | None, step_time: float | None, cache: bool, output: Path | None,
         force: bool) -> None:
    """Show a trace and what is wrong with it on a page, in the browser; with -o, in one file to send.

    TRACE is a profiler trace (.json or .json.gz), a directory of them (the newest is taken), or - for standard input.
    """
    from lanewise.diagnose.explain import facts_of, report_of
    from lanewise.show.html import bundle, report_html
    from lanewise.show.timeline import MAX_SLICES

    bundle()  # fail before reading a large trace
    facts = facts_of(open_trace(source, cache=cache), unprofiled_us=step_time)
    emit(report_html(facts, report_of(facts), max_slices=max_slices or MAX_SLICES), output, force)
