"""Summaries of ranks kept by the content of their traces, so that each trace is read once; of a remote file by its
address and what its store says of this version of it, so that it need not be fetched to be known.

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
from lanewise.errors import LanewiseError
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.trace.file.parquet_cache import content_digest, store_cap
from lanewise.trace.file.remote import is_url, version_of

__all__ = ["find_summary", "keep_summary"]

_PREFIX = "ranks-"
_MOST = 20_000
"""Summaries kept at most, about 1 GB."""


def find_summary(name: str) -> RankSummary | None:
    """The summary of a trace with the content of this file or address, under its name; None if none is kept."""
    folder = _folder()
    if store_cap() <= 0 or not folder.is_dir():
        return None
    try:
        kept = folder / f"{_key(name)}.msgpack"
        summary = msgspec.msgpack.decode(kept.read_bytes(), type=RankSummary)
        os.utime(kept)
    except (OSError, LanewiseError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(summary, file=os.path.basename(name))


def keep_summary(name: str, summary: RankSummary) -> None:
    """Keep the summary of that file or address."""
    if store_cap() <= 0 or not summary.digest:
        return
    folder = _folder()
    with suppress(OSError, LanewiseError):
        if not folder.is_dir():
            for other in folder.parent.glob(f"{_PREFIX}*"):
                shutil.rmtree(other, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.write_bytes(msgspec.msgpack.encode(summary))
        unfinished.rename(folder / f"{_key(name) if is_url(name) else summary.digest}.msgpack")
        kept = list(folder.glob("*.msgpack")) if len(os.listdir(folder)) > _MOST else []
        for oldest in sorted(kept, key=lambda one: one.stat().st_mtime)[: len(kept) - _MOST * 9 // 10]:
            oldest.unlink()


def _key(name: str) -> str:
    return version_of(name) if is_url(name) else content_digest(Path(name))


def _folder() -> Path:
    return cache_folder() / f"{_PREFIX}{code_state()}"
