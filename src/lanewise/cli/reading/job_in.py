"""A folder that holds the ranks of a job: found, and shown as a page with a page for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import check_output, counted, emit
from lanewise.errors import LanewiseError, UsageError

if TYPE_CHECKING:
    from lanewise.diagnose.sections.ranks import JobTold
    from lanewise.diagnose.settings import Settings
    from lanewise.measure.distributed.gathering.read_ranks import RanksRead
    from lanewise.show.page.job_server import JobServer

__all__ = ["job_server", "ranks_in", "world_of", "write_job_pages"]

_PAGES = 8
"""Ranks whose pages are written beside that of the job: the late ones, and the first others."""


def world_of(source: str) -> tuple[int, str]:
    """Ranks of the job that the newest trace of a folder is of, and that trace; 0 for what is no folder of a job."""
    from lanewise.measure.distributed.ranks import world_in
    from lanewise.trace.file.folder import metadata_of, traces_in

    if not Path(source).is_dir():
        return 0, source
    (newest,) = traces_in(Path(source), every=False)
    return world_in(metadata_of(newest)), str(newest)


def ranks_in(source: str, *, cache: bool) -> RanksRead | None:
    """The ranks of the job in a folder; None where it holds none, as a folder of trees, or one rank alone."""
    from lanewise.measure.distributed.gathering.read_ranks import read_ranks

    try:
        if world_of(source)[0] < 2:
            return None
        with counted("ranks read") as progress:
            return read_ranks([source], cache=cache, progress=progress)
    except LanewiseError:
        return None


def job_server(found: RanksRead, told: JobTold, name: str, settings: Settings, *, cache: bool) -> JobServer:
    """The page of a job from a local server; a rank's own page is made when it is asked for."""
    from lanewise.diagnose.explain import facts_of, report_of
    from lanewise.show.page.job_server import JobServer
    from lanewise.show.page.server import PageServer
    from lanewise.trace.reader import read

    def page_of(row: int) -> PageServer:
        facts = facts_of(read(found.files[row], cache=cache))
        return PageServer(facts, report_of(facts, settings))

    return JobServer(told, name, page_of)


def write_job_pages(
    found: RanksRead, told: JobTold, name: str, output: Path, settings: Settings, *, cache: bool, force: bool
) -> None:
    """Write the page of a job, and the pages of its late ranks and the first others into a folder beside it.

    Raises:
        UsageError: one of them exists, or cannot be written.
    """
    from lanewise.diagnose.explain import facts_of, report_of
    from lanewise.show.page.html import report_html
    from lanewise.show.page.job_page import job_html
    from lanewise.trace.reader import read

    check_output(output, force)
    folder = output.with_name(f"{output.stem}-ranks")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
    row_of = {one.rank: row for row, one in enumerate(found.ranks) if one.rank >= 0}
    late = [told.job.ranks[one.index].rank for one in told.job.late]
    chosen = [rank for rank in dict.fromkeys([*late, *sorted(row_of)]) if rank in row_of][: max(_PAGES, len(late))]
    with counted("pages written") as progress:
        for done, rank in enumerate(chosen, 1):
            facts = facts_of(read(found.files[row_of[rank]], cache=cache))
            emit(report_html(facts, report_of(facts, settings)), folder / f"rank{rank}.html", force)
            if progress is not None:
                progress(done, len(chosen))
    pages = {rank: f"{folder.name}/rank{rank}.html" for rank in chosen}
    emit(job_html(told, name, pages), output, force)
    click.echo(f"wrote {output}, and the pages of {len(chosen)} ranks in {folder}", err=True)
