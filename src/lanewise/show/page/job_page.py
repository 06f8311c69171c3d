"""Ranks of a job on a page: what is said of them, a map of ranks and steps, one step in time, and the page of each rank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from lanewise._version import __version__
from lanewise.diagnose.sections.rank_causes import cause_of, main_cause
from lanewise.diagnose.sections.ranks import JobTold
from lanewise.measure.distributed.own_steps import more_in_steps
from lanewise.measure.distributed.together.step_in_time import step_in_time
from lanewise.show.page.html import document
from lanewise.show.report.json import to_plain
from lanewise.show.report.tables import cut_tables

__all__ = ["job_html"]

_ROWS = 2_000


def job_html(told: JobTold, name: str, pages: Mapping[int, str]) -> str:
    """One self-contained page about a job.

    Args:
        told: what is said of it. name: of its folder.
        pages: addresses of the pages of ranks, by number of the rank.
    """
    job = told.job
    causes = {late.index: cause_of(main_cause(late)[0]) for late in job.late}
    more = more_in_steps(job)
    first = next((one.steps for one in job.ranks if one.steps), [])
    data: dict[str, Any] = {
        "name": os.path.basename(os.path.abspath(name)) or name,
        "version": __version__,
        "step_ns": job.step_ns,
        "steps": first[: more.shape[1]],
        "ranks": [
            {
                "rank": str(one.rank) if one.rank >= 0 else "?",
                "file": one.file,
                "late": row in causes,
                "cause": causes.get(row, ""),
                "page": pages.get(one.rank, ""),
                "more": [round(value) if np.isfinite(value) else None for value in more[row].tolist()],
            }
            for row, one in enumerate(job.ranks)
        ],
        "together": step_in_time(job, told.together),
        "told": to_plain(told.section.statements),
        "tables": to_plain(cut_tables(told.section.tables, limit=_ROWS)),
    }
    title = str(told.section.statements[0]) if told.section.statements else "ranks of a job"
    return document(title, title, {"job": data}, {})
