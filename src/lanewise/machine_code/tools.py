"""NVIDIA's programs that read machine code: `nvdisasm`, `cuobjdump`, `ptxas`. The triton package brings all three."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from lanewise.errors import InputError, MissingDependencyError

__all__ = ["find_tool", "run_tool"]

_LONGEST_S = 120
_MOST_BYTES = 256 << 20


def find_tool(name: str) -> Path:
    """Where a tool is: in triton's package, in CUDA's folder, or on the PATH.

    Raises:
        MissingDependencyError: it is nowhere, with what to install.
    """
    for folder in (_of_triton(), _of_cuda()):
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


def _of_cuda() -> Path | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return Path(home) / "bin" if home else None


def run_tool(name: str, *words: str | Path, folder: Path | None = None) -> str:
    """What a tool prints; `folder` is where it runs, and leaves what it writes.

    Raises:
        MissingDependencyError: it is not here. InputError: it cannot read the file, or takes forever, in its own words.
    """
    command = [str(find_tool(name)), *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, cwd=folder, timeout=_LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{name} was still reading {words[-1]} after {_LONGEST_S} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        # A compiler says last how many errors there are, and first which.
        what = next((line for line in said if ": error" in line), said[-1] if said else "")
        raise InputError(f"{words[-1]}: {name} cannot read it" + (f" ({what[:160]})" if what else ""))
    if len(done.stdout) > _MOST_BYTES:
        raise InputError(f"{words[-1]}: {name} prints more than {_MOST_BYTES >> 20} MiB of it")
    return done.stdout.decode(errors="replace")
