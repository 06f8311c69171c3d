"""Four-rank jobs recorded on H200s: what was planted in them, and their summaries."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.rank_summary import RankSummary, summarise
from lanewise.trace.reader import read
from tests.support.corpus import CORPUS, REPOSITORY

PIPELINE = "r4_pipeline_gpipe"
GOOD = "r4_ddp_good"
PLANTED = {"r4_ddp_sleep_rank2_4ms": (2, 4.0), "r4_ddp_python_rank3_3ms": (3, 3.0)}
"""Late rank, and by how many ms."""

_FOLDERS = (REPOSITORY / "tests" / "data" / "ranks4", CORPUS / "ranks4")


def job_paths(name: str) -> list[Path]:
    """The traces of a job; skips the test where only the full corpus has them and that is absent."""
    for folder in _FOLDERS:
        if found := sorted(folder.glob(f"{name}_rank*.json.gz")):
            return found
    pytest.skip(f"{name} is in the full corpus only")


@cache
def job_summaries(name: str) -> tuple[RankSummary, ...]:
    """The summaries of a job's ranks; read once per test run."""
    return tuple(summarise(Core(read(path, cache=False))) for path in job_paths(name))
