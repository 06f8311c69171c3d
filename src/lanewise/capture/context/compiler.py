"""The C++ compiler on this machine that can read the headers of this torch, and the language standard for it.

The standard is torch's to say: its headers refuse an older one, and its own extensions are compiled with the one that
torch itself was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lanewise.errors import LanewiseError

__all__ = ["BuildError", "find_compiler", "one_line", "standards"]

_GUARDED = ("ATen/ATen.h", "torch/csrc/api/include/torch/all.h")
"""Headers that begin with a check of the standard."""

_GUARD = re.compile(r"__cplusplus\s*<\s*(20\d\d)\d\dL?")
_OWN = re.compile(r"-std=c\+\+(\d\d)\b")
_SECONDS = 20.0


class BuildError(LanewiseError):
    """The collector cannot be compiled or loaded here; the message says why in one line."""


def standards(torch_folder: Path) -> tuple[int, int]:
    """The oldest C++ standard that torch's headers take, and the one that torch compiles extensions with: 17, 20."""
    oldest = [17]
    for name in _GUARDED:
        oldest += [int(year) - 2000 for year in _GUARD.findall(_text(torch_folder / "include" / name))]
    # Read, not imported: the module brings setuptools and warnings into the program.
    own = [int(year) for year in _OWN.findall(_text(torch_folder / "utils" / "cpp_extension.py"))]
    return max(oldest), max([*oldest, *own])


def find_compiler(torch_folder: Path, version: str) -> tuple[str, str]:
    """Path of a compiler, and the standard to ask it for: `c++20`. BuildError says what to install."""
    oldest, own = standards(torch_folder)
    asked = os.environ.get("CXX")
    found = _asked(asked) if asked else _installed()
    if not found:
        what = f"the compiler that CXX names ({asked})" if asked else "a C++ compiler"
        raise BuildError(f"{what} is missing (Debian and Ubuntu: apt install g++)")
    for standard in sorted({own, oldest}, reverse=True):
        for path in found:
            if _understands(path, standard):
                return path, f"c++{standard}"
    path = found[0]
    if not _understands(path, oldest, library=False):
        raise BuildError(
            f"the headers of torch {version} need C++{oldest}, which {_name(path)} does not know: install a newer"
            f" compiler (GCC 11 or Clang 16 for C++20; Debian and Ubuntu: apt install g++) or name one in CXX"
        )
    raise BuildError(f"{path} lacks the C++ standard library (Debian and Ubuntu: apt install g++)")


def one_line(text: str) -> str:
    """At most 300 characters without line breaks."""
    return " ".join(text.split())[:300]


def _asked(words: str) -> list[str]:
    path = shutil.which(words)
    return [path] if path else []


def _installed() -> list[str]:
    """The usual compilers first, then versions of them that are installed beside, newest first."""
    beside: dict[str, int] = {}
    for folder in os.get_exec_path():
        for pattern in ("g++-*", "clang++-*"):
            try:
                names = [path.name for path in Path(folder).glob(pattern)]
            except OSError:
                continue
            beside.update((name, int(tail)) for name in names if (tail := name.rpartition("-")[2]).isdigit())
    names = ["g++", "c++", "clang++", *sorted(beside, key=lambda name: (-beside[name], name))]
    return list(dict.fromkeys(path for name in names if (path := shutil.which(name))))


def _understands(compiler: str, standard: int, *, library: bool = True) -> bool:
    """Whether it takes the standard, in full: GCC 10 takes the option and says of itself that it is not there yet."""
    source = f"#if __cplusplus < 20{standard}00L\n#error older\n#endif\n" + ("#include <cstddef>\n" if library else "")
    try:
        done = subprocess.run(
            [compiler, f"-std=c++{standard}", "-fsyntax-only", "-x", "c++", "-"],
            input=source, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _name(compiler: str) -> str:
    """`g++ 9.4.0`."""
    name = os.path.basename(compiler)
    try:
        words = [compiler, "-dumpfullversion", "-dumpversion"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return name
    return one_line(f"{name} {done.stdout}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
