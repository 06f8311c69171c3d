"""NVIDIA's programs that read machine code: `nvdisasm`, `cuobjdump`, `ptxas`. The triton package brings all three, and
there are packages of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from lanewise.errors import InputError, MissingDependencyError

__all__ = ["find_tool", "nvidia_folders", "run_tool"]

_READERS = ("nvdisasm", "cuobjdump")
_NO_CODE = "does not contain device code"
_LONGEST_S = 120
_MOST_BYTES = 256 << 20


def find_tool(name: str) -> Path:
    """Where a tool is: in a package of its own, in triton's, in CUDA's folder, or on the PATH.

    Raises:
        MissingDependencyError: it is nowhere, with what to install.
    """
    *packages, cuda = (folder / "bin" for folder in nvidia_folders())
    for folder in (*packages, _of_triton(), cuda):
        if folder is not None and os.access(folder / name, os.X_OK):
            return folder / name
    if found := shutil.which(name):
        return Path(found)
    raise MissingDependencyError(
        f"{name} is not here, which reads machine code: pip install triton (no GPU is needed), or CUDA's tools on the PATH"
    )


def _of_triton() -> Path | None:
    # Found, not imported: importing it takes a second.
    spec = importlib.util.find_spec("triton")
    where = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(where))) / "backends" / "nvidia" / "bin" if where else None


def nvidia_folders() -> list[Path]:
    """Folders of NVIDIA's packages for Python that have its compilers and tools; the last is that of CUDA itself."""
    # Found, not imported: it is a folder of libraries.
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec is not None else None
    found = [Path(place) / name for place in places or () for name in _PACKAGES]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return [*(folder for folder in found if folder.is_dir()), Path(home)]


_PACKAGES = ("cu13", "cuda_nvrtc", "cuda_runtime", "cuda_nvcc")


def run_tool(name: str, *words: str | Path, folder: Path | None = None, of: Path | None = None) -> str:
    """What a tool prints; `folder` is where it runs, and leaves what it writes.

    Args:
        of: the file that the user knows, if it is not the last word.

    Raises:
        MissingDependencyError: it is not here. InputError: it cannot read the file, or takes forever, in its own words.
    """
    command, shown = [str(find_tool(name)), *map(str, words)], of or words[-1]
    try:
        done = subprocess.run(command, capture_output=True, cwd=folder, timeout=_LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{name} was still reading {shown} after {_LONGEST_S} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if any(line.endswith(_NO_CODE) for line in said):
            raise InputError(f"{shown}: holds no machine code of a kernel")
        # A compiler says last how many errors there are, and first which.
        what = next((line for line in said if ": error" in line), said[-1] if said else "")
        newer = f"; a newer one may: pip install nvidia-cuda-{name}" if name in _READERS else ""
        raise InputError(f"{shown}: {name} cannot read it" + (f" ({what[:160]})" if what else "") + newer)
    if len(done.stdout) > _MOST_BYTES:
        raise InputError(f"{shown}: {name} prints more than {_MOST_BYTES >> 20} MiB of it")
    return done.stdout.decode(errors="replace")
