"""Writes what was sampled to a file, with where the code of each kernel is: in a compiler's cache, or in a library."""

from __future__ import annotations

import getpass
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lanewise._version import __version__
from lanewise.capture.sampling.kernel_title import title_of
from lanewise.capture.sampling.pc_sampler import Taken

__all__ = ["SAMPLES_SCHEMA", "caches", "samples_of", "write_samples"]

SAMPLES_SCHEMA = "lanewise.samples/1"
_LARGEST = 64 << 20


def samples_of(
    taken: Taken,
    seconds: float,
    crc: Callable[[bytes], int],
    folders: list[Path],
    elsewhere: Callable[[dict[int, str]], dict[int, Path]],
) -> dict[str, Any]:
    """All that was sampled, by kernel.

    Args:
        seconds: for how long. crc: the checksum by which samples name a cubin.
        folders: caches of compilers. elsewhere: where cubins are that no cache has, each with a kernel that it holds.
    """
    by_kernel: dict[tuple[int, str], list[list[Any]]] = {}
    for (cubin, name, offset, reason), number in sorted(taken.counts.items()):
        by_kernel.setdefault((cubin, name), []).append([offset, reason, number])
    files = _files_of({name for _, name in by_kernel}, folders)
    codes = {of: _code_of(of[0], files.get(of[1], []), crc) for of in by_kernel}
    others = elsewhere({cubin: name for (cubin, name), code in codes.items() if not code})
    kernels = [
        {
            "name": name,
            "title": title_of(name),
            "code": codes[cubin, name] or str(others.get(cubin, "")),
            "samples": samples,
        }
        for (cubin, name), samples in by_kernel.items()
    ]
    return {
        "schema": SAMPLES_SCHEMA,
        "version": __version__,
        "seconds": round(seconds, 6),
        "dropped": taken.dropped,
        "kernels": kernels,
    }


def write_samples(path: Path, samples: dict[str, Any]) -> None:
    """Write them. OSError where that fails."""
    path.write_text(json.dumps(samples) + "\n", encoding="utf-8")


def caches() -> list[Path]:
    """Folders in which Triton and `torch.compile` keep what they have compiled."""
    found = [Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")]
    inductor = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if inductor is None:
        with suppress(KeyError, OSError, ImportError):
            inductor = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    return found + ([Path(inductor) / "triton"] if inductor else [])


def _files_of(names: set[str], folders: list[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in _cubins(folders):
        if file.stem in names:
            found.setdefault(file.stem, []).append(file)
    return found


def _cubins(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for root, _, files in os.walk(folder):
            yield from (Path(root, name) for name in files if name.endswith(".cubin"))


def _code_of(cubin: int, files: list[Path], crc: Callable[[bytes], int]) -> str:
    """The file that holds just this code; the only one of its name where none has the checksum; "" if there is none."""
    for file in files:
        with suppress(OSError):
            if file.stat().st_size <= _LARGEST and crc(file.read_bytes()) == cubin:
                return str(file)
    return str(files[0]) if len(files) == 1 else ""
