"""Where the bytes of a trace come from: a file of any name, a folder, standard input, or a remote file with fsspec."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lanewise.errors import InputError, MissingDependencyError, UsageError
from lanewise.trace.file.folder import traces_in

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
        argument: a path, a directory, `-` for standard input, or a URL of a scheme that fsspec knows.
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
    scheme, separator, _ = text.partition("://")
    if separator and scheme.isalnum() and len(scheme) > 1:
        return [_remote(text)]
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


def _remote(url: str) -> Source:
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(f"reading {url} needs fsspec: pip install 'lanewise[remote]'") from None
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        details = filesystem.info(path)
    except ImportError as error:
        raise MissingDependencyError(f"reading {url} needs another package: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{url}: there is no such file") from None
    except Exception as error:  # every backend has exceptions of its own
        raise InputError(f"{url}: {error}") from None
    size = details.get("size")
    return Source(url, lambda: filesystem.open(path, "rb"), size if isinstance(size, int) else None)
