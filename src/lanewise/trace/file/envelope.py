"""The file around the events: where their list starts, what the other keys say, what a file is that has no such list.

The head is walked member by member, so that a file of another kind is named after its first kilobytes and a trace's
events are never searched for inside other values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from lanewise.errors import InputError, NotATraceError
from lanewise.trace.file.json_repairs import plain_value
from lanewise.trace.file.scan import Member, members, skip_space
from lanewise.trace.reading_losses import Reading

__all__ = ["Head", "Metadata", "own_kind", "read_head", "read_tail"]

_KINETO_KEYS = {
    "schemaVersion",
    "deviceProperties",
    "baseTimeNanoseconds",
    "displayTimeUnit",
    "distributedInfo",
    "record_shapes",
}
_LARGEST_HEAD = 32 << 20
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_OWN_SCHEMA = re.compile(rb'\s*\{\s*"schema"\s*:\s*"lanewise\.([a-z-]+)/')
_LARGEST_VALUE = 1 << 20
_LARGEST_METADATA = 8 << 20


class Metadata:
    """The keys beside `traceEvents`, as plain values within bounds. What they say is untrusted."""

    def __init__(self, reading: Reading) -> None:
        self.values: dict[str, Any] = {}
        self._reading = reading
        self._size = 0

    def add(self, key: str, text: bytes) -> None:
        """Keep one value; the last of several with one key wins, as in any JSON parser."""
        if key in self.values:
            self._reading.repair("key written twice", key)
        if len(text) > _LARGEST_VALUE or self._size + len(text) > _LARGEST_METADATA:
            self._reading.lose("metadata too large to keep", f"{key}: {len(text)} bytes")
            return
        found = plain_value(text)
        if found is None:
            self._reading.lose("metadata that cannot be read", f"{key}: {text[:100].decode('utf-8', 'replace')}")
            return
        value, mended = found
        mended.count_in(self._reading)
        self._size += len(text)
        self.values[key] = value


class Head(NamedTuple):
    """The start of a trace: the list that holds the events, and the text that follows its opening bracket."""

    in_object: bool
    rest: bytes
    no_events: bool
    """The file ends before any event."""


def read_head(more: Callable[[], bytes], metadata: Metadata, reading: Reading) -> Head:
    """Read up to the first event.

    Args:
        more: gives the next bytes of the file, empty at its end.

    Raises:
        InputError: the file is empty.
        NotATraceError: it is something else; the message says what.
    """
    text = _first_text(more)
    if text[:1] == b"[":
        return _list_head(text, more)
    if text[:1] != b"{":
        raise NotATraceError(_not_json(text))
    if own := own_kind(text):
        raise NotATraceError(f"it is a {own} that lanewise wrote, not a trace")
    found, events, text, ended = _walk(text, more)
    closed = False
    if events is None and not _is_foreign(found):
        after = found[-1].end if found else 1
        closed = ended and after >= 0 and text[skip_space(text, after) :][:1] == b"}"
        if not closed and (named := _EVENTS.search(text)):
            reading.lose("metadata that cannot be read", text[max(after, 0) :][:100].decode("utf-8", "replace"))
            events = Member("traceEvents", named.end() - 1, -1)
    if events is None:
        likely = len({member.key for member in found} & _KINETO_KEYS) >= (2 if closed else 1)
        if not ended or not likely or _is_foreign(found):
            raise NotATraceError(_other_json(found, whole=closed))
    for member in found:
        if member.key != "traceEvents" and member.end >= 0:
            metadata.add(member.key, text[member.start : member.end])
    if events is None:
        reading.truncated = not closed
        reading.lose("the list of events is missing", text[-100:].decode("utf-8", "replace"))
        return Head(True, b"", True)
    if text[events.start : events.start + 1] == b"[":
        return Head(True, text[events.start + 1 :], False)
    if text[events.start : events.start + 4] == b"null":
        reading.repair("`traceEvents` is null")
        return Head(True, b"]" + text[events.start + 4 :], False)
    raise NotATraceError("its `traceEvents` is not a list of events")


def own_kind(text: bytes) -> str:
    """What else lanewise writes as JSON, by the beginning of the file: `report`, `baseline`, `plan`; empty if it is none.

    The schema is the first key of all of them.
    """
    found = _OWN_SCHEMA.match(text)
    return found[1].decode().replace("-", " ") if found else ""


def _walk(text: bytes, more: Callable[[], bytes]) -> tuple[list[Member], Member | None, bytes, bool]:
    """Members up to `traceEvents`, that one if there is one, all text read so far, whether the file ends with it."""
    wanted, ended = 1 << 16, False
    while True:
        found: list[Member] = []
        for member in members(text, 1, until="traceEvents"):
            if member.key == "traceEvents" and member.start < len(text):
                return found, member, text, ended
            found.append(member)
        hopeless = _is_foreign(found) or len(text) > _LARGEST_HEAD or (not found and len(text) >= 1 << 16)
        if hopeless or ended:
            return found, None, text, ended
        ended, text = _grow(text, more, wanted)
        wanted *= 2


def read_tail(text: bytes, metadata: Metadata, reading: Reading, *, in_object: bool) -> bytes | None:
    """Read what follows the list of events, to the end of the file.

    Returns the text of a second list of events, if there is one, without its opening bracket.
    """
    at = skip_space(text, 0)
    if not in_object:
        if text[at:].strip():
            reading.repair("text after the end of the trace", text[at : at + 100].decode("utf-8", "replace"))
        return None
    for member in members(text, at):
        if member.key == "traceEvents" and text[member.start : member.start + 1] == b"[":
            reading.repair("key written twice", "traceEvents")
            return text[member.start + 1 :]
        if member.end < 0:
            if _is_closed(text):
                reading.lose("metadata that cannot be read", member.key)
            else:
                reading.truncated = True
                reading.lose("metadata that is cut off", member.key)
            return None
        metadata.add(member.key, text[member.start : member.end])
        at = member.end
    at = skip_space(text, at)
    if text[at : at + 1] != b"}":
        reading.truncated |= not _is_closed(text)
        if text[at:].strip():
            reading.lose("metadata that cannot be read", text[at : at + 100].decode("utf-8", "replace"))
        return None
    if text[at + 1 :].strip(b" \t\r\n\0"):
        reading.repair("text after the end of the trace", text[at + 1 : at + 101].decode("utf-8", "replace"))
    return None


def _is_closed(text: bytes) -> bool:
    """Whether a file ends as one that was written to its end does: what cannot be read before that is damage, no cut."""
    return text.rstrip(b" \t\r\n\0").endswith(b"}")


def _grow(text: bytes, more: Callable[[], bytes], wanted: int) -> tuple[bool, bytes]:
    parts, held = [text], len(text)
    while held < wanted:
        block = more()
        if not block:
            return True, b"".join(parts)
        parts.append(block)
        held += len(block)
    return False, b"".join(parts)


def _first_text(more: Callable[[], bytes]) -> bytes:
    """The file from its first character that is not white space; at most a few megabytes of white space are skipped."""
    skipped = 0
    while block := more():
        if skipped == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
        text = block.lstrip()
        if text:
            return text
        skipped += len(block)
        if skipped > 1 << 26:
            raise NotATraceError("it starts with more than 64 MiB of white space")
    raise InputError("it is empty" if skipped == 0 else "it contains nothing but white space")


def _list_head(text: bytes, more: Callable[[], bytes]) -> Head:
    ended, text = _grow(text, more, 1 << 12)
    at = skip_space(text, 1)
    first = text[at : at + 1]
    if first == b"{":
        # A list of objects is a trace if its first object has the keys of a row.
        keys = {member.key for member in members(text, at + 1)}
        if keys and not keys & {"ph", "ts", "name", "cat", "args", "pid"}:
            raise NotATraceError(f"it is a JSON list of objects with keys {_listing(keys)}, not a list of trace events")
        return Head(False, text[1:], False)
    if first == b"]":
        return Head(False, text[1:], False)
    if first == b"[":
        raise NotATraceError(
            "it is a memory timeline (a list of lists, from export_memory_timeline), not a trace; "
            "record one with torch.profiler and export_chrome_trace"
        )
    if ended and not first:
        raise InputError("it ends after its first character")
    raise NotATraceError("it is a JSON list of something else than trace events")


def _is_foreign(found: list[Member]) -> bool:
    """Whether the keys so far are those of another format, so that the rest need not be read."""
    return any(member.key in _FOREIGN for member in found)


_FOREIGN = {
    "nodes": "a PyTorch execution trace (from ExecutionTraceObserver)",
    "rocprofiler-sdk-tool": "a rocprofv3 JSON trace",
    "segments": "a PyTorch memory snapshot",
    "device_traces": "a PyTorch memory snapshot",
    "$schema": "a speedscope profile",
    "planes": "an XPlane trace",
    "samples": "a sampling profile",
    "cells": "a Jupyter notebook",
}


def _other_json(found: list[Member], *, whole: bool) -> str:
    keys = [member.key for member in found]
    for key in keys:
        if key in _FOREIGN:
            what = _FOREIGN[key]
            if key == "nodes" and "samples" in keys:
                what = "a V8 CPU profile"
            return f"it is {what}, not a profiler trace; record one with torch.profiler and export_chrome_trace"
    if not whole:
        return "it is cut off, or not JSON: no list of events begins in it"
    if keys:
        return f"it is JSON without `traceEvents`; its keys are {_listing(keys)}"
    return "it is JSON without `traceEvents`"


def _listing(keys: Any) -> str:
    shown = [key[:40] for key in list(keys)[:6]]
    return ", ".join(shown) + (" ..." if len(keys) > 6 else "")


_TEXTUAL = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*")


def _not_json(text: bytes) -> str:
    head = text[:512]
    lower = head.lower()
    if lower.startswith((b"<!doctype html", b"<html", b"<?xml", b"<")):
        return "it is an HTML or XML page, not a trace"
    if lower.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    if _TEXTUAL.fullmatch(head):
        return "it is plain text, not a JSON trace"
    return "it is a binary file, not a JSON trace"
