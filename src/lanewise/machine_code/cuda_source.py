"""Compiles CUDA C++ for a card that need not be there: by nvcc, or by NVRTC, a library that comes with torch for CUDA."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from lanewise.errors import InputError, MissingDependencyError
from lanewise.machine_code.tools import find_tool, nvidia_folders, run_tool

__all__ = ["compiled_cuda"]

_NEWEST_FIRST = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
# From this on, instructions of one generation (`wgmma`, `tcgen05`) are only there where the target names it exactly.
_EXACT = (9, 0)


def compiled_cuda(file: Path, capability: tuple[int, int], folder: Path) -> Path:
    """The machine code of a file of CUDA C++, in a folder.

    Raises:
        MissingDependencyError: neither compiler is here. InputError: the file does not compile, in the compiler's words.
    """
    made = folder / f"{file.stem}.cubin"
    target = f"sm_{capability[0]}{capability[1]}{'a' if capability >= _EXACT else ''}"
    try:
        find_tool("nvcc")
    except MissingDependencyError:
        made.write_bytes(_by_nvrtc(file, target))
        return made
    run_tool("nvcc", "-cubin", "-lineinfo", "-std=c++17", f"-arch={target}", "-o", made, file.resolve(), of=file)
    return made


def _by_nvrtc(file: Path, target: str) -> bytes:
    library, headers = _nvrtc()
    folders = [file.resolve().parent, *headers]
    options = [
        f"--gpu-architecture={target}",
        "-lineinfo",
        "--std=c++17",
        *(f"--include-path={one}" for one in folders),
    ]
    program = ctypes.c_void_p()
    source, name = file.read_bytes(), os.fsencode(file.name)
    words = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
    if library.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None):
        raise InputError(f"{file}: NVRTC cannot read it")
    try:
        if library.nvrtcCompileProgram(program, len(options), words):
            said = _taken(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip().splitlines()
            first = next((line.strip() for line in said if "error" in line), said[0].strip() if said else "")
            raise InputError(f"{file} cannot be compiled" + (f": {first[:300]}" if first else ""))
        return _taken(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """What a program has to give: its machine code, or what the compiler says."""
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw[: size.value]


def _nvrtc() -> tuple[ctypes.CDLL, list[Path]]:
    """The library, and folders with CUDA's headers."""
    folders = nvidia_folders()
    for path in (folder / name for folder in folders for name in ("lib", "lib64")):
        for name in _NEWEST_FIRST:
            if not (path / name).exists():
                continue
            try:
                # It looks for this part of itself by name only: in vain, where it is not on the library path.
                for part in sorted(path.glob("libnvrtc-builtins.so.*")):
                    ctypes.CDLL(str(part))
                library = ctypes.CDLL(str(path / name))
            except OSError:
                continue
            return library, [one / "include" for one in folders if (one / "include").is_dir()]
    raise MissingDependencyError(
        "no compiler for CUDA C++ is here: pip install nvidia-cuda-nvrtc (no GPU is needed), or CUDA's tools on the PATH"
    )
