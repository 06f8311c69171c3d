"""Where the bytes of a trace come from: a file of any name, a folder, standard input, or a remote file with fsspec."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lanewise.errors import InputError, UsageError
from lanewise.trace.file.folder import traces_in
from lanewise.trace.file.remote import RemoteFile, is_url, traces_at

__all__ = ["Source", "resolve"]


@dataclass(frozen=True)
class Source:
    """One input. `name` is for messages; `open` gives its bytes; `size` is known for files."""

    name: str
    open: Callable[[], BinaryIO]
    size: int | None = None
    path: Path | None = None


def resolve(argument: str | os.PathLike[str] | Source, *, every: bool = False) -> list[Source]:
    """The inputs that an argument means.

    Args:
        argument: a path, a directory, `-` for standard input, or a URL of a file or folder of a scheme that fsspec knows.
        every: of a directory, all traces (by name) instead of the newest.

    Raises:
        InputError: there is no such file, or no trace in the directory.
        MissingDependencyError: a URL without fsspec.
    """
    if isinstance(argument, Source):
        return [argument]
    text = os.fspath(argument)
    if not text:
        raise UsageError("an empty path names no trace")
    if text == "-":
        return [Source("standard input", lambda: sys.stdin.buffer)]
    if is_url(text):
        return [_remote(found) for found in traces_at(text, every=every)]
    path = Path(text)
    try:
        folder = path.is_dir()
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    if folder:
        return [_file(found) for found in traces_in(path, every=every)]
    return [_file(path)]


def _file(path: Path) -> Source:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    except ValueError as error:
        raise InputError(f"{str(path)!r} is no path: {error}") from None
    regular = path.is_file()
    # A name that is no text in this locale may be text in UTF-8; what is stored and shown must be text.
    name = os.fsencode(path).decode("utf-8", "replace")
    return Source(name, lambda: _opened(path), status.st_size if regular else None, path if regular else None)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)  # type: ignore[return-value]
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (error.strerror or str(error)).lower()


def _remote(file: RemoteFile) -> Source:
    return Source(file.url, file.open, file.size)
