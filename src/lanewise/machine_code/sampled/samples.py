"""Reads a file of samples, as `lanewise run --sample` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from lanewise.errors import InputError

__all__ = ["KernelSamples", "Samples", "is_samples", "read_samples"]

_ENDING = ".samples.json"
_FAMILY = "lanewise.samples/"
_SCHEMA = f"{_FAMILY}1"
_Count = Annotated[int, msgspec.Meta(ge=0)]


class KernelSamples(msgspec.Struct, frozen=True):
    """Of one kernel.

    Attributes:
        name: of its function; untrusted text. code: the file of its machine code, "" if unknown.
        title: as traces call it, "" where that was not written.
        samples: by offset of the instruction in bytes, and reason in NVIDIA's words.
    """

    name: str
    samples: list[tuple[_Count, str, _Count]]
    code: str = ""
    title: str = ""

    @property
    def called(self) -> str:
        """As traces and trees call it."""
        return self.title or self.name


class Samples(msgspec.Struct, frozen=True):
    """Of a run.

    Attributes:
        seconds: how long was sampled. dropped: samples that were lost.
    """

    schema: str
    kernels: list[KernelSamples]
    seconds: float = 0.0
    dropped: int = 0


def is_samples(source: str) -> bool:
    """Whether a file is called as files of samples are."""
    return source.endswith(_ENDING)


def read_samples(path: Path) -> Samples:
    """The samples of a file. InputError if it cannot be read, or holds something else."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Samples)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"{path}: no file of samples: {error}") from error
    if found.schema != _SCHEMA:
        newer = found.schema.startswith(_FAMILY)
        raise InputError(
            f"{path}: " + (f"{found.schema} is of another lanewise" if newer else "no file of samples, by its schema")
        )
    return found
