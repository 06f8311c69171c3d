"""Machine code of kernels in libraries that a program has loaded, such as an extension of its own, which no compiler's
cache has."""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.machine_code.tools import run_tool

__all__ = ["code_in_libraries", "loaded_libraries"]

_LIBRARY = re.compile(r"^(?:\S+\s+){5}(/.*\.so(?:\.[\d.]+)?)$", re.MULTILINE)
_OF_TORCH = ("/torch/lib/", "/nvidia/")
"""Folders of torch's and NVIDIA's own libraries: gigabytes of kernels without lines."""
_LARGEST = 256 << 20
_HAS_KERNELS = b".nv_fatbin\0"


def loaded_libraries(maps: Path = Path("/proc/self/maps")) -> list[Path]:
    """The libraries that this process has loaded beside torch's own. None where the system does not say so."""
    with suppress(OSError):
        mapped = dict.fromkeys(_LIBRARY.findall(maps.read_text(errors="replace")))
        return [Path(one) for one in mapped if not any(folder in one for folder in _OF_TORCH)]
    return []


def code_in_libraries(
    wanted: dict[int, str], libraries: Iterable[Path], crc: Callable[[bytes], int], keep: Path
) -> dict[int, Path]:
    """Takes cubins out of libraries into a folder, which is made if any is found.

    Args:
        wanted: a kernel of each cubin, by the checksum by which samples name it.
        crc: that checksum of a cubin. keep: the folder.

    Returns:
        The files by checksum: of each cubin that is in a library small enough to look through, where NVIDIA's `cuobjdump`
        is at hand.
    """
    found: dict[int, Path] = {}
    for library in libraries:
        if not _launches(library, [name for number, name in wanted.items() if number not in found]):
            continue
        with tempfile.TemporaryDirectory() as folder, suppress(LanewiseError, OSError):
            run_tool("cuobjdump", "-xelf", "all", library, folder=Path(folder))
            for cubin in sorted(Path(folder).glob("*.cubin")):
                number = crc(cubin.read_bytes())
                if number in wanted and number not in found:
                    keep.mkdir(parents=True, exist_ok=True)
                    found[number] = Path(shutil.copy(cubin, keep / f"{number:016x}.cubin"))
    return found


def _launches(library: Path, kernels: list[str]) -> bool:
    """Whether a library has one of these kernels: then it has its name, however its code is packed."""
    with suppress(OSError, ValueError):
        if 0 < library.stat().st_size <= _LARGEST:
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(_HAS_KERNELS) >= 0 and any(
                    content.find(one.encode() + b"\0") >= 0 for one in kernels
                )
    return False
