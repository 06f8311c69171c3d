"""A plan as a file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lanewise.errors import InputError
from lanewise.fix.model import PlanReport

__all__ = ["SAVED_SCHEMA", "Saved", "read_saved"]

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


def read_saved(path: str | os.PathLike[str]) -> Saved:
    """The file's content. Raises InputError."""
    try:
        saved = msgspec.json.decode(Path(path).read_bytes(), type=Saved)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no plan of lanewise: {' '.join(str(error).split())[:160]}") from None
    if saved.schema != SAVED_SCHEMA:
        raise InputError(f"{path} is a plan of another version ({saved.schema[:40]}): optimize again")
    return saved
