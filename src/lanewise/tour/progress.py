"""What the tour remembers of its reader: where the folder is, and which lessons were answered."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lanewise.cache_folder import state_folder
from lanewise.errors import UsageError

__all__ = ["Progress", "forget", "load_progress", "save_progress"]


class Progress(msgspec.Struct):
    """The folder of the tour, "" before it was begun, and the right answer that was given to each lesson, by its name."""

    folder: str = ""
    answered: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def load_progress() -> Progress:
    """What is remembered; nothing, where that cannot be read."""
    try:
        return msgspec.json.decode(_file().read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError):
        return Progress()


def save_progress(progress: Progress) -> None:
    """Remember it. Raises UsageError where it cannot be written."""
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_bytes(msgspec.json.encode(progress))
    except OSError as error:
        raise UsageError(
            f"cannot remember progress in {_file()} ({error.strerror or error}): LANEWISE_STATE_DIR names another folder"
        ) from None


def forget() -> None:
    """Start over."""
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return state_folder() / "tour.json"
