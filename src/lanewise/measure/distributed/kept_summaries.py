"""Summaries of ranks kept by the content of their traces, so that each trace is read once.

What prevents keeping one is no error. Summaries made by other code than this are deleted, and the ones used longest ago
when there are too many.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from lanewise.cache_folder import cache_folder, code_state
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.trace.file.parquet_cache import content_digest, store_cap

__all__ = ["find_summary", "keep_summary"]

_PREFIX = "ranks-"
_MOST = 20_000
"""Summaries kept at most, about 1 GB."""


def find_summary(path: Path) -> RankSummary | None:
    """The summary of a trace with the content of this file, under the name of this file; None if none is kept."""
    folder = _folder()
    if store_cap() <= 0 or not folder.is_dir():
        return None
    try:
        kept = folder / f"{content_digest(path)}.msgpack"
        summary = msgspec.msgpack.decode(kept.read_bytes(), type=RankSummary)
        os.utime(kept)
    except (OSError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(summary, file=path.name)


def keep_summary(summary: RankSummary) -> None:
    """Keep a summary."""
    if store_cap() <= 0 or not summary.digest:
        return
    folder = _folder()
    with suppress(OSError):
        if not folder.is_dir():
            for other in folder.parent.glob(f"{_PREFIX}*"):
                shutil.rmtree(other, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.write_bytes(msgspec.msgpack.encode(summary))
        unfinished.rename(folder / f"{summary.digest}.msgpack")
        kept = list(folder.glob("*.msgpack")) if len(os.listdir(folder)) > _MOST else []
        for oldest in sorted(kept, key=lambda one: one.stat().st_mtime)[: len(kept) - _MOST * 9 // 10]:
            oldest.unlink()


def _folder() -> Path:
    return cache_folder() / f"{_PREFIX}{code_state()}"
