"""The summary of one rank from the name of its trace, wherever that is read."""

from __future__ import annotations

import msgspec

from lanewise.errors import LanewiseError
from lanewise.measure.core import Core
from lanewise.measure.distributed.gathering.kept_summaries import find_summary, keep_summary
from lanewise.measure.distributed.rank_summary import RankSummary, summarise
from lanewise.trace.reader import read_recorded

__all__ = ["ENDED", "decoded", "encoded_summary", "summary_of"]

ENDED = "the process that read it ended: there may be too little memory"


def summary_of(name: str, *, cache: bool) -> RankSummary | str:
    """The summary of a trace, or why there is none, in one line."""
    try:
        known = find_summary(name) if cache else None
        if known is not None:
            return known
        summary = summarise(Core(read_recorded(name, cache=cache)))
    except LanewiseError as error:
        return str(error)
    if cache:
        keep_summary(name, summary)
    return summary


def encoded_summary(name: str, cache: bool) -> bytes:
    """The same, to be sent to another process."""
    return msgspec.msgpack.encode(summary_of(name, cache=cache))


def decoded(answer: bytes | None) -> RankSummary | str:
    """What another process has sent; None if it ended."""
    return ENDED if answer is None else msgspec.msgpack.decode(answer, type=RankSummary | str)
