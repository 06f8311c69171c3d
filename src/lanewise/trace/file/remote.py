"""Files in object stores and on other machines, through fsspec: one, or those of a folder."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from lanewise.errors import InputError, LanewiseError, MissingDependencyError

__all__ = ["ENDINGS", "RemoteFile", "is_url", "traces_at", "version_of"]

ENDINGS = (".json", ".json.gz", ".json.gzip", ".trace", ".trace.gz")
"""How the name of a trace ends."""

_NOT_TRACES = (".report.json", ".ranks.json")


@dataclass(frozen=True)
class RemoteFile:
    """One file: its address, what opens it, its size in bytes, None if the store does not say."""

    url: str
    open: Callable[[], BinaryIO]
    size: int | None


def is_url(text: str) -> bool:
    """Whether it is an address with a scheme, and no path."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.isalnum() and len(scheme) > 1


def traces_at(url: str, *, every: bool) -> list[RemoteFile]:
    """The file at an address; of a folder its traces by name, or the newest: what is named like one. A file that is none
    is found out when it is read.

    Raises:
        InputError: there is nothing, or no trace.
        MissingDependencyError: fsspec, or what it needs for this scheme, is not installed.
    """
    filesystem, path = _filesystem(url)
    details = _asked(url, lambda: filesystem.info(path))
    if details.get("type") != "directory":
        return [_file(filesystem, url, path, details)]
    listed: list[dict[str, Any]] = _asked(url, lambda: filesystem.ls(path, detail=True))
    found = [one for one in listed if one.get("type") != "directory" and _named_like_a_trace(str(one.get("name", "")))]
    if not found:
        raise InputError(f"{url}: no trace in it, that is no file that ends in {', '.join(ENDINGS[:2])}")
    found.sort(key=lambda one: str(one["name"]))
    chosen = found if every else [max(found, key=lambda one: _age(filesystem, one))]
    return [_file(filesystem, f"{url.rstrip('/')}/{_last(one)}", str(one["name"]), one) for one in chosen]


def version_of(url: str) -> str:
    """A key of the file's present content, by what its store says of it: address, size, time or tag. Raises as above."""
    filesystem, path = _filesystem(url)
    key = _asked(url, lambda: filesystem.ukey(path))
    return f"remote-{hashlib.sha256(f'{url} {key}'.encode()).hexdigest()}"


def _last(details: dict[str, Any]) -> str:
    return str(details["name"]).rsplit("/", 1)[-1]


def _named_like_a_trace(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.endswith(ENDINGS) and not name.endswith(_NOT_TRACES) and not name.startswith(".")


def _age(filesystem: Any, details: dict[str, Any]) -> float:
    try:
        return float(filesystem.modified(details["name"]).timestamp())
    except Exception:  # a store need not know
        return 0.0


def _file(filesystem: Any, url: str, path: str, details: dict[str, Any]) -> RemoteFile:
    size = details.get("size")
    return RemoteFile(url, lambda: filesystem.open(path, "rb"), size if isinstance(size, int) else None)


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise MissingDependencyError(f"reading {url} needs fsspec: pip install 'lanewise[remote]'") from None
    return _asked(url, lambda: fsspec.core.url_to_fs(url))


def _asked(url: str, question: Callable[[], Any]) -> Any:
    try:
        return question()
    except LanewiseError:
        raise
    except ImportError as error:
        raise MissingDependencyError(f"reading {url} needs another package: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{url}: there is no such file") from None
    except Exception as error:  # every backend has exceptions of its own
        raise InputError(f"{url}: {error}") from None
