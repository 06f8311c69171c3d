"""A plan as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from lanewise.errors import InputError
from lanewise.fix.model import SCHEMA, PlanReport

__all__ = ["SAVED_SCHEMA", "Saved", "read_report", "read_saved"]

T = TypeVar("T")

SAVED_SCHEMA = "lanewise.saved-plan/1"


class Saved(msgspec.Struct, frozen=True):
    """A plan in a file: what it holds for, what it consists of, and how it was proven.

    Attributes:
        applied: names of the candidates, in their order. allowed: what the user allowed by name.
        structure, kinds, machine: see `fingerprint`. report: what was tried.
    """

    schema: str
    applied: list[str]
    allowed: list[str]
    structure: str
    kinds: list[dict[str, str]]
    machine: dict[str, str]
    report: PlanReport


class _Headed(msgspec.Struct, frozen=True):
    """What says which of the two a file is."""

    schema: str = ""


def read_report(path: str | os.PathLike[str]) -> PlanReport:
    """What was tried, from a saved plan or from the report itself as JSON. Raises InputError."""
    content = _content(path)
    headed = _decoded(content, path, _Headed)
    return _decoded(content, path, PlanReport) if headed.schema == SCHEMA else read_saved(path).report


def read_saved(path: str | os.PathLike[str]) -> Saved:
    """The file's content. Raises InputError."""
    saved = _decoded(_content(path), path, Saved)
    if saved.schema != SAVED_SCHEMA:
        raise InputError(f"{path} is a plan of another version ({saved.schema[:40]}): optimize again")
    return saved


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _decoded(content: bytes, path: str | os.PathLike[str], kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no plan of lanewise: {' '.join(str(error).split())[:160]}") from None
