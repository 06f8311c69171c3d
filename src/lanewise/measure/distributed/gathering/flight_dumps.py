"""Dumps of flight recorders among what was given, apart from the traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lanewise.errors import InputError
from lanewise.trace.file.flight_dump import FlightDump, is_flight_dump, read_flight_dump

__all__ = ["flight_dumps"]


def flight_dumps(sources: Sequence[str]) -> tuple[list[FlightDump], list[tuple[str, str]], list[str]]:
    """The dumps of each rank, by number; those that cannot be read, with the reason; and the sources without them."""
    found: list[FlightDump] = []
    unreadable: list[tuple[str, str]] = []
    rest: list[str] = []
    for source in sources:
        path = Path(source)
        inside = path.is_dir()
        files = sorted(one for one in path.iterdir() if one.is_file()) if inside else [path] if path.is_file() else []
        dumps = [one for one in files if not one.name.startswith(".") and is_flight_dump(one)]
        for dump in dumps:
            try:
                found.append(read_flight_dump(dump))
            except InputError as error:
                unreadable.append((dump.name, str(error)))
        if len(dumps) < len(files) or not dumps:
            rest.append(source)
    return sorted(found, key=lambda one: one.rank), unreadable, rest
