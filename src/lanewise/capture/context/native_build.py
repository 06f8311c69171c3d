"""Compiles the native collector, once per torch and Python, with nothing but a C++ compiler.

The result lies in the user's cache under a key of everything that it depends on. No CUDA toolkit is needed: all headers
come from Python and torch, and CUPTI's library is opened at run time.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.errors import LanewiseError

__all__ = ["MODULE", "BuildError", "Recipe", "cached", "cupti_library", "load", "make_recipe"]

MODULE = "lanewise_context"

_SOURCES = Path(__file__).parent / "native"
_SECONDS = 300.0


class BuildError(LanewiseError):
    """The collector cannot be compiled or loaded here; the message says why in one line."""


class Recipe(NamedTuple):
    """What is compiled, with what.

    Attributes:
        compiler: the C++ compiler's path.
        include: directories of headers. link: directories of libraries.
        flags: for every source. raw_frames: whether the interpreter's own headers are there.
        key: of everything that the result depends on.
    """

    compiler: str
    include: tuple[str, ...]
    link: tuple[str, ...]
    flags: tuple[str, ...]
    raw_frames: bool
    key: str


def make_recipe(extra_flags: tuple[str, ...] = ()) -> Recipe:
    """How to compile for this torch and this Python. BuildError if something is missing."""
    if sys.platform != "linux":
        raise BuildError(f"the native collector needs Linux, this is {sys.platform}")
    if sys.implementation.name != "cpython":
        raise BuildError(f"the native collector needs CPython, this is {sys.implementation.name}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("the native collector does not know Python without the GIL yet")
    compiler = _compiler()
    python = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(python, "Python.h")):
        raise BuildError(
            f"Python's headers are missing (Debian and Ubuntu: apt install python3-dev); looked in {python}"
        )
    torch = torch_part()
    root = Path(torch.__file__).parent
    if not (root / "include" / "ATen" / "record_function.h").exists():
        raise BuildError(f"torch {torch.__version__} came without its C++ headers")
    raw = os.path.exists(os.path.join(python, "internal", "pycore_frame.h"))
    flags = (
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(bool(torch_part('torch._C')._GLIBCXX_USE_CXX11_ABI))}",
        # For sanitizers and debuggers.
        *os.environ.get("LANEWISE_NATIVE_FLAGS", "").split(),
        *extra_flags,
    )
    include = (python, str(root / "include"), str(root / "include" / "torch" / "csrc" / "api" / "include"))
    facts = (
        torch.__version__,
        str(getattr(torch.version, "git_version", "")),
        str(sysconfig.get_config_var("SOABI")),
        platform.python_version(),
        platform.machine(),
        _version_of(compiler),
        *flags,
        str(raw),
        _digest(),
    )
    return Recipe(
        compiler=compiler,
        include=include,
        link=(str(root / "lib"),),
        flags=flags,
        raw_frames=raw,
        key=hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24],
    )


def cached(recipe: Recipe) -> Path | None:
    """The compiled module, if it has been built before."""
    path = _folder() / f"{MODULE}-{recipe.key}.so"
    return path if path.exists() and _is_ours(path) else None


def load(recipe: Recipe | None = None, log: Callable[[str], None] = lambda _: None) -> ModuleType:
    """The compiled module, built first if need be (10 to 60 seconds, once). BuildError if that fails."""
    if (loaded := sys.modules.get(MODULE)) is not None:
        return loaded
    recipe = recipe or make_recipe()
    path = cached(recipe) or _build(recipe, log)
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    if spec is None:
        raise BuildError(f"cannot load {path.name}")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise BuildError(f"the compiled collector does not load: {_one_line(str(error))}") from error
    sys.modules[MODULE] = module
    return module


def _build(recipe: Recipe, log: Callable[[str], None]) -> Path:
    folder = _writable_folder(log)
    with _locked(folder):
        # Another process may have been faster.
        final = folder / f"{MODULE}-{recipe.key}.so"
        if final.exists():
            return final
        log(f"building the collector for torch {torch_part().__version__}, once")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as work:
            built = Path(work) / final.name
            _compile(recipe, Path(work), built)
            os.replace(built, final)
        _forget_old(folder, final)
        return final


def _compile(recipe: Recipe, work: Path, target: Path) -> None:
    include = [word for folder in recipe.include for word in ("-isystem", folder)]
    frames = work / "frames.o"
    # The interpreter's headers are C, everything else is C++.
    walk = [recipe.compiler, "-x", "c", "-c", str(_SOURCES / "frames.c"), "-o", str(frames), *recipe.flags, *include]
    try:
        _call([*walk, *(("-DLANEWISE_RAW_FRAMES",) if recipe.raw_frames else ())])
    except BuildError:
        if not recipe.raw_frames:
            raise
        # A Python whose inner structure we do not know: its frames are read in the official way.
        _call(walk)
    sources = sorted(str(path) for path in _SOURCES.glob("*.cpp"))
    link = [word for folder in recipe.link for word in ("-L", folder)]
    _call(
        [
            recipe.compiler, "-std=c++17", "-shared", *recipe.flags, *include, *sources, str(frames), "-o", str(target),
            *link, "-ltorch_cpu", "-lc10", "-ldl", "-lpthread",
        ]
    )  # fmt: skip


def _call(words: list[str]) -> None:
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"the compiler did not finish within {_SECONDS:.0f} s") from None
    except OSError as error:
        raise BuildError(f"cannot start the compiler: {error.strerror or error}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise BuildError(f"the compiler failed: {_one_line(errors[0])}")


def _compiler() -> str:
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else ("g++", "c++", "clang++"):
        if found := shutil.which(name):
            return found
    what = f"the compiler that CXX names ({asked})" if asked else "a C++ compiler"
    raise BuildError(f"{what} is missing (Debian and Ubuntu: apt install g++)")


def _version_of(compiler: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [compiler, "-dumpfullversion", "-dumpversion", "-dumpmachine"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return f"{compiler} {done.stdout}"
    return compiler


def _digest() -> str:
    whole = hashlib.sha256()
    for path in sorted(_SOURCES.iterdir()):
        if path.suffix in (".c", ".cpp", ".h"):
            whole.update(path.name.encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


def cupti_library() -> str:
    """Path of the CUPTI library that belongs to this torch, for where torch has not mapped it itself; "" if unknown."""
    built: Any = getattr(torch_part().version, "cuda", None)
    if not built:
        return ""
    folders: list[Path] = []
    for name in (f"nvidia.cu{str(built).split('.')[0]}", "nvidia.cuda_cupti"):
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            folders += [Path(part) / "lib" for part in (spec.submodule_search_locations or ())] if spec else []
    for home in filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        folders += [Path(home) / part for part in ("extras/CUPTI/lib64", "lib64")]
    for folder in folders:
        if found := sorted(folder.glob("libcupti.so*")):
            return str(found[-1])
    return ""


def _folder() -> Path:
    if chosen := os.environ.get("LANEWISE_CACHE_DIR"):
        return Path(chosen) / "native"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "lanewise" / "native"


def _writable_folder(log: Callable[[str], None]) -> Path:
    """The cache, or a folder of this process's own where the cache cannot be written."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        log(f"cannot write to the cache ({error.strerror or error}): the collector is built for this run only")
        folder = Path(tempfile.mkdtemp(prefix="lanewise-native-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    with open(folder / ".lock", "w") as lock:
        # Network file systems may have no locks; then two builds may run, and the last one wins.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_old(folder: Path, keep: Path, most: int = 8) -> None:
    """Builds for versions that are gone: only the newest few stay."""
    with contextlib.suppress(OSError):
        built = sorted(folder.glob(f"{MODULE}-*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in [path for path in built if path != keep][most - 1 :]:
            path.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    """Code is loaded only from files that nobody else could have written."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
