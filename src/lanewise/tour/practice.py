"""The folder in which the reader of the tour works: programs and recordings to practise on."""

from __future__ import annotations

from pathlib import Path

import lanewise.bundled
from lanewise.bundled import bundled_path
from lanewise.errors import InputError, LanewiseError, UsageError

__all__ = ["FOLDER", "PROGRAM", "original", "recording", "start"]

FOLDER = "lanewise-tour"
PROGRAM = "optimizer_loop.py"
RECORDINGS = ("matmul-small", "matmul-large", "item-loop")


def original() -> str:
    """The program of the tour as it is shipped: in the package, or in the checkout that the package runs from."""
    packaged = Path(lanewise.bundled.__file__).parent / "programs" / PROGRAM
    checkout = Path(lanewise.bundled.__file__).parents[3] / "examples" / "bad" / PROGRAM
    for path in (packaged, checkout):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise LanewiseError(f"{PROGRAM} did not come with this installation; reinstall lanewise")


def start(folder: Path) -> list[str]:
    """Put the files of the tour into a folder; returns the names of those that were written. Files that are there stay.

    Raises:
        UsageError: it cannot be written to.
    """
    contents = {PROGRAM: original().encode()}
    contents |= {f"{name}.json.gz": bundled_path(name).read_bytes() for name in RECORDINGS}
    written: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
                written.append(name)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from None
    return written


def recording(folder: Path, name: str) -> str:
    """Path of a recording in the folder of the tour.

    Raises:
        InputError: it is not there yet.
    """
    path = folder / name
    if not path.is_file():
        raise InputError(f"there is no {name} in {folder}: run the commands of the lesson there first")
    return str(path)
