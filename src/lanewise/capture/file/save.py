"""A recorded trace on disk: the recorder's facts put into it, private ones taken out, compressed, never overwriting."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lanewise.capture.file.compressed import TwoPartWriter, replace_first_part
from lanewise.capture.own_frames import OwnFrames
from lanewise.capture.thread_identity import own_threads
from lanewise.errors import LanewiseError
from lanewise.trace.metadata import KEY

__all__ = ["discard", "free_path", "is_whole", "rank_suffix", "rewrite_facts", "write_trace"]

_CHUNK = 1 << 20
_LEVEL = 3
"""Level 6 makes the file 10 % smaller and takes twice the time, which the program waits for."""

_HOST_NAME = re.compile(rb'\s*"host_name": "(?:[^"\\]|\\.)*",')
_TRACE_NAME = re.compile(rb'"traceName": "(?:[^"\\]|\\.)*"')


def write_trace(raw: Path, final: Path, facts: dict[str, Any], *, unfinished: int | None = None) -> int:
    """Copies the exported JSON at `raw` to the gzip file `final`, with `facts` under the key `lanewise`.

    The host name and the absolute path that Kineto writes are left out. The step `unfinished`, which the program did
    not complete, is renamed, or it would count as one. `final` appears complete or not at all. Raises LanewiseError
    where the disk is full or read-only; `raw` is kept in any case.

    Returns:
        Bytes of the file up to the end of the facts, for `rewrite_facts`.
    """
    partial = final.with_name(final.name + ".part")
    ours = OwnFrames(own_threads)
    step = None if unfinished is None else f'"name": "ProfilerStep#{unfinished}"'.encode()
    try:
        with open(raw, "rb") as source, open(partial, "wb") as file:
            head = source.read(_CHUNK)
            opening = head.find(b"{")
            if opening < 0:
                raise LanewiseError(f"the profiler wrote no trace to {raw.name}")
            target = TwoPartWriter(file, _LEVEL)
            target.write(_first_part(facts))
            target.end_first_part()
            held = _HOST_NAME.sub(b"", head[opening + 1 :], count=1)
            while chunk := source.read(_CHUNK):
                # Whole events only, and never the last lines yet: they carry the name of the trace.
                held += chunk
                cut = _end_of_event(held, max(0, len(held) - 4096))
                target.write(_renamed(ours.without(held[:cut]), step))
                held = held[cut:]
            name = json.dumps(final.name).encode()
            target.write(_TRACE_NAME.sub(lambda _: b'"traceName": ' + name, _renamed(ours.without(held), step)))
            target.close()
        os.replace(partial, final)
        return target.first_part
    except OSError as error:
        raise LanewiseError(f"cannot write {final}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _end_of_event(text: bytes, before: int) -> int:
    """Where the last event that is over before some place ends; the last line, in a file that is laid out otherwise."""
    end = b"\n  },\n"
    found = text.rfind(end, 0, before)
    return found + len(end) if found >= 0 else text.rfind(b"\n", 0, before) + 1


def is_whole(raw: Path) -> bool:
    """Whether the profiler wrote its export to the end; on a full disk it says nothing and leaves a part, or nothing."""
    try:
        with open(raw, "rb") as file:
            file.seek(max(0, raw.stat().st_size - 4096))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def discard(raw: Path) -> None:
    """Removes an export, and what the profiler had written of it under another name."""
    for path in (raw, raw.with_name(raw.name + ".tmp")):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def rewrite_facts(path: Path, facts: dict[str, Any], first_part: int) -> int:
    """Puts `facts` in the place of those that `write_trace` put into the file.

    Args:
        first_part: what `write_trace` or an earlier call returned.

    Returns:
        The same of the new file. Raises LanewiseError as `write_trace` does.
    """
    partial = path.with_name(path.name + ".part")
    try:
        with open(path, "rb") as source, open(partial, "wb") as target:
            first_part = replace_first_part(source, target, first_part, _first_part(facts), _LEVEL)
        os.replace(partial, path)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise LanewiseError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    return first_part


def _first_part(facts: dict[str, Any]) -> bytes:
    return f'{{\n  "{KEY}": {json.dumps(facts, separators=(",", ":"))},'.encode()


def _renamed(text: bytes, step: bytes | None) -> bytes:
    return text if step is None else text.replace(step, step.replace(b"ProfilerStep", b"UnfinishedStep"))


def free_path(folder: Path, stem: str, ending: str) -> Path:
    """`folder/stem + ending`, or with the first free number put in between: nothing is overwritten."""
    candidate = folder / f"{stem}{ending}"
    number = 2
    while candidate.exists():
        candidate = folder / f"{stem}-{number}{ending}"
        number += 1
    return candidate


def rank_suffix(environment: Mapping[str, str]) -> str:
    """`-rank3` for a process of a distributed job, or an empty text."""
    rank = environment.get("RANK", environment.get("LOCAL_RANK", ""))
    return f"-rank{rank}" if rank.isdigit() and environment.get("WORLD_SIZE", "1") != "1" else ""
