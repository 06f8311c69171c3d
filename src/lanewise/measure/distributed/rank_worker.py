"""Several processes that summarise ranks: names of traces on standard input, answers on standard output, each with its
length before it.

A program of its own, and no fork or copy of the caller: whoever calls needs no guard around its main module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from lanewise.errors import LanewiseError
from lanewise.measure.core import Core
from lanewise.measure.distributed.kept_summaries import find_summary, keep_summary
from lanewise.measure.distributed.rank_summary import RankSummary, summarise
from lanewise.trace.reader import read

__all__ = ["summaries", "summary_of"]

_LENGTH = 8
_ENDED = "the process that read it ended: there may be too little memory"


def summary_of(name: str, *, cache: bool) -> RankSummary | str:
    """The summary of a trace, or why there is none, in one line."""
    try:
        known = find_summary(Path(name)) if cache else None
        if known is not None:
            return known
        summary = summarise(Core(read(name, cache=cache)))
    except LanewiseError as error:
        return str(error)
    if cache:
        keep_summary(summary)
    return summary


def summaries(names: Sequence[str], *, cache: bool, workers: int) -> Iterator[RankSummary | str]:
    """The answers of so many processes, in the order of the names; each holds one trace at a time."""
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "lanewise.measure.distributed.rank_worker", "cache" if cache else "no-cache"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        for _ in range(workers)
    ]
    try:
        for row, process in enumerate(running):
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it ended: its answers say so
                process.stdin.write(msgspec.json.encode(names[row::workers]))
                process.stdin.close()
        for row in range(len(names)):
            yield _answer(running[row % workers])
    finally:
        for process in running:
            process.kill()
            process.wait()


def _answer(process: subprocess.Popen[bytes]) -> RankSummary | str:
    assert process.stdout is not None
    length = process.stdout.read(_LENGTH)
    data = process.stdout.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH or not data:
        return _ENDED
    return msgspec.msgpack.decode(data, type=RankSummary | str)


def main() -> None:
    """Answer until the names end."""
    names = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    for name in names:
        data = msgspec.msgpack.encode(summary_of(name, cache=sys.argv[1] == "cache"))
        sys.stdout.buffer.write(len(data).to_bytes(_LENGTH, "big") + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
