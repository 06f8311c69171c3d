"""Which files of a folder are traces: named like one, and one. Reports, trees, plans and tables lie beside them.

Every verb and `lanewise.read` take a folder by this rule alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lanewise.errors import InputError, LanewiseError
from lanewise.trace.file.envelope import Metadata, own_kind, read_head
from lanewise.trace.file.remote import ENDINGS
from lanewise.trace.file.scan import members, skip_space
from lanewise.trace.file.unwrap import DEFAULT_MAX_BYTES, unwrap
from lanewise.trace.reading_losses import Reading

__all__ = ["metadata_of", "traces_in"]

_TREE = b"LWTREE\x00"
_OTHER = "other file"
_NAMED = 3
"""Files of one kind that a message names."""


def traces_in(folder: Path, *, every: bool) -> list[Path]:
    """The newest trace of a folder, or all of them by name; those of the folders in it if itself holds none.

    Hidden files are passed over, among them recordings that were not finished.

    Raises:
        InputError: it holds none, with what it holds instead; or it cannot be listed.
    """
    passed: list[tuple[Path, str]] = []
    try:
        for pattern in ("*", "*/*"):  # log directories keep one folder per run or rank
            found: list[Path] = []
            for path in _by_age(folder.glob(pattern), folder):
                if what := _what_else(path):
                    passed.append((path, what))
                    continue
                found.append(path)
                if not every:
                    break
            if found:
                return sorted(found)
    except OSError as error:
        raise InputError(f"{folder}: {(error.strerror or str(error)).lower()}") from None
    raise InputError(f"{folder}: no trace in it{_listing(passed)}; `lanewise run SCRIPT` records one")


def metadata_of(path: Path) -> dict[str, Any]:
    """What a trace says before its events begin; empty for a file that is no trace or cannot be read."""
    try:
        with path.open("rb") as stream:
            reading = Reading(source=path.name)
            metadata = Metadata(reading)
            read_head(unwrap(stream, path.name, reading, DEFAULT_MAX_BYTES, lambda _: None), metadata, reading)
    except (OSError, LanewiseError):
        return {}
    return metadata.values


def _by_age(paths: Iterable[Path], folder: Path) -> list[Path]:
    """Regular files, the newest first."""
    dated: list[tuple[int, str, Path]] = []
    for path in paths:
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file():
            dated.append((path.stat().st_mtime_ns, str(path), path))
    return [path for _, _, path in sorted(dated, reverse=True)]


def _what_else(path: Path) -> str:
    """What a file is if it is no trace, as a word to be counted; empty for a trace."""
    try:
        with path.open("rb") as stream:
            if stream.read(len(_TREE)) == _TREE:
                return "saved tree"
            if not path.name.endswith(ENDINGS):
                return _OTHER
            stream.seek(0)
            reading = Reading(source=path.name)
            more = unwrap(stream, path.name, reading, DEFAULT_MAX_BYTES, lambda _: None)
            first: list[bytes] = [more()]
            if own := own_kind(first[0]):
                return own
            head = read_head(lambda: first.pop() if first else more(), Metadata(reading), reading)
    except (OSError, LanewiseError):
        return _OTHER
    if head.no_events:
        return "trace without its events"
    # Any list of objects with names and numbers could pass for a list of rows; those of a trace have a phase.
    if head.in_object or any(one.key == "ph" for one in members(head.rest, skip_space(head.rest, 0) + 1)):
        return ""
    return _OTHER


def _listing(passed: list[tuple[Path, str]]) -> str:
    kinds: dict[str, list[str]] = {}
    for path, what in passed:
        kinds.setdefault(what, []).append(path.name)
    parts: list[str] = []
    for what, names in sorted(kinds.items(), key=lambda kind: (kind[0] == _OTHER, kind[0])):
        shown = ", ".join(sorted(names)[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        parts.append(f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({shown})")
    return f", but {' and '.join(parts)}" if parts else ""
