"""What `lanewise run` ends with on the first rank of a job: the ranks beside each other, then the one to look at first.

Runs in a process of its own, as the report of a single program does.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

__all__ = ["main"]

_ENDING = ".ranks.json"
_ROWS = 8


class _Order(msgspec.Struct, frozen=True):
    """What `lanewise run` asks for.

    Attributes:
        traces: of the job. shown: that of the first rank as the user would name it. lost: sentences on ranks without one.
        form: `text` or `json`. project: folder whose settings count. price: of an hour, dollars; None for the project's.
    """

    traces: list[str]
    shown: str
    lost: list[str]
    form: str
    project: str
    price: float | None = None


def main(order: str) -> None:
    """Print the job's report on standard output; as `json` that of the one rank there, and the job's on standard error."""
    from lanewise.cli.plain import as_shown
    from lanewise.cli.recording.after_run import explained_beside, print_report
    from lanewise.errors import LanewiseError

    asked = msgspec.json.decode(order, type=_Order)
    as_shown()
    look_at = asked.traces[0]
    try:
        look_at = _print_job(asked)
    except LanewiseError as error:
        print(f"lanewise: {error}", file=sys.stderr)
    for sentence in asked.lost:
        print(sentence, file=sys.stderr if asked.form == "json" else sys.stdout)
    try:
        report = explained_beside(look_at, asked.project, price=asked.price)
    except LanewiseError as error:
        sys.exit(f"lanewise: cannot explain the trace: {error}")
    print_report(report, asked.form)


def _print_job(asked: _Order) -> str:
    """Print what the ranks say together and keep it beside the first trace; the trace to look at first."""
    from lanewise.cli.common import console, project_settings
    from lanewise.cli.recording.after_run import write_beside
    from lanewise.diagnose.sections.ranks import Explained, told_of_job
    from lanewise.measure.distributed.gathering.executor import executor_for
    from lanewise.measure.distributed.gathering.read_ranks import read_ranks
    from lanewise.show.report.sections import print_sections
    from lanewise.show.report.tables import Tables, cut_tables, tables_json

    settings = project_settings(start=Path(asked.project), price=asked.price)
    found = read_ranks(asked.traces)
    # Who is missing has been said, and why.
    told = told_of_job(
        replace(found, missing=[]) if asked.lost else found,
        explained=Explained(settings, executor_for("processes")),
        price=settings.price,
    )
    section = told.section
    whole = Tables(found.files[0], cut_tables(section.tables, limit=None), {"ranks": section.statements})
    write_beside(found.files[0], _ENDING, tables_json(whole))
    screen = console(sys.stderr) if asked.form == "json" else console()
    screen.print()
    print_sections(screen, {"ranks": section}, cut_tables(section.tables, limit=_ROWS))
    look_at = found.files[told.look_at]
    folder, rank = os.path.dirname(asked.shown) or ".", found.ranks[told.look_at].rank
    which = "the late rank" if told.is_late else "one of them"
    screen.print(f"{which[0].upper()}{which[1:]}, rank {rank}, by itself (all of them: lanewise ranks {folder}):")
    return look_at
