"""Source files as Python reads them: encoding, byte order mark and line ends are kept when they are written again."""

from __future__ import annotations

import io
import os
import shutil
import tokenize
from pathlib import Path
from typing import NamedTuple

from lanewise.errors import InputError, LanewiseError

__all__ = ["Source", "check_writable", "lines_of", "read_source", "write_bytes", "write_source"]


class Source(NamedTuple):
    """A source text, with line ends as in the file, and its encoding."""

    text: str
    encoding: str


def read_source(path: Path) -> Source:
    """Read a file. Raises InputError if it cannot be read, or is no text in the encoding that it declares."""
    if path.suffix == ".ipynb":
        raise InputError(f"{path} is a notebook: write it as a script first, with jupyter nbconvert --to script {path}")
    try:
        data = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return Source(data.decode(encoding), encoding)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is no {error.encoding.upper()} text") from None
    except SyntaxError as error:
        raise InputError(f"cannot read {path}: {error.msg}") from None


def check_writable(path: Path) -> None:
    """Raise LanewiseError if a file may not be written to, before anything is done for it."""
    if not os.access(path, os.W_OK):
        raise LanewiseError(f"cannot write {path}: Permission denied")


def write_source(path: Path, text: str, encoding: str) -> None:
    """Write a file. Raises LanewiseError if that cannot be done."""
    write_bytes(path, text.encode(encoding))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, all of it or nothing: whoever is killed meanwhile leaves what was there before.

    Raises LanewiseError if that cannot be done.
    """
    path = path.resolve()  # a link stays one
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if not path.exists() or not os.access(path.parent, os.W_OK):
            path.write_bytes(data)
            return
        try:
            part.write_bytes(data)
            shutil.copymode(path, part)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise LanewiseError(f"cannot write {path}: {error.strerror or error}") from None


def lines_of(text: str) -> list[str]:
    """Lines with their ends, as Python and diffs count them: a form feed ends none."""
    return list(io.StringIO(text, newline="\n"))
