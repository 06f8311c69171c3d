"""Compiles the native collector, once per torch and Python, with nothing but a C++ compiler.

The result lies in the user's cache under a key of everything that it depends on; so does the outcome of a build that
failed, which is not tried again at every start. No CUDA toolkit is needed: all headers come from Python and torch, and
CUPTI's library is opened at run time.
"""

from __future__ import annotations

import atexit
import concurrent.futures
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
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lanewise.cache_folder import cache_folder
from lanewise.capture.context.compiler import BuildError, find_compiler, one_line
from lanewise.capture.lazy_torch import torch_part

__all__ = [
    "MODULE",
    "BuildError",
    "Recipe",
    "cached",
    "cupti_library",
    "failed_before",
    "forget",
    "load",
    "make_recipe",
]

MODULE = "lanewise_context"

_SOURCES = Path(__file__).parent / "native"
_SECONDS = 300.0

_REMEMBERED_SECONDS = 7 * 86400.0
"""After that a build that failed is tried once more: what it failed for need not be part of its key."""


class Recipe(NamedTuple):
    """What is compiled, with what.

    Attributes:
        compiler: the C++ compiler's path. standard: of the language, `c++20`.
        include: directories of headers. link: directories of libraries.
        flags: for every source. raw_frames: whether the interpreter's own headers are there.
        key: of everything that the result depends on.
    """

    compiler: str
    standard: str
    include: tuple[str, ...]
    link: tuple[str, ...]
    flags: tuple[str, ...]
    raw_frames: bool
    key: str


def make_recipe(extra_flags: tuple[str, ...] = ()) -> Recipe:
    """How to compile for this torch and this Python; takes a tenth of a second. BuildError if something is missing."""
    if sys.platform != "linux":
        raise BuildError(f"the native collector needs Linux, this is {sys.platform}")
    if sys.implementation.name != "cpython":
        raise BuildError(f"the native collector needs CPython, this is {sys.implementation.name}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("the native collector does not know Python without the GIL yet")
    python = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(python, "Python.h")):
        raise BuildError(
            f"Python's headers are missing (Debian and Ubuntu: apt install python3-dev); looked in {python}"
        )
    torch = torch_part()
    root = Path(torch.__file__).parent
    if not (root / "include" / "ATen" / "record_function.h").exists():
        raise BuildError(f"torch {torch.__version__} came without its C++ headers")
    compiler, standard = find_compiler(root, str(torch.__version__))
    raw = os.path.exists(os.path.join(python, "internal", "pycore_frame.h"))
    flags = (
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-w",
        # The first error is what we tell; the rest of the file would only take time.
        "-Wfatal-errors",
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
        standard,
        *flags,
        str(raw),
        _digest(),
    )
    return Recipe(
        compiler=compiler,
        standard=standard,
        include=include,
        link=(str(root / "lib"),),
        flags=flags,
        raw_frames=raw,
        key=hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24],
    )


def cached(recipe: Recipe) -> Path | None:
    """The compiled module, if it has been built before."""
    path = cache_folder() / "native" / f"{MODULE}-{recipe.key}.so"
    return path if path.exists() and _is_ours(path) else None


def failed_before(recipe: Recipe) -> str:
    """Why this very build failed the last time, one line; "" if it was never tried, or long ago."""
    path = _failure(cache_folder() / "native", recipe)
    try:
        if _is_ours(path) and time.time() - path.stat().st_mtime < _REMEMBERED_SECONDS:
            return one_line(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        pass
    return ""


def forget(recipe: Recipe) -> None:
    """Try again what failed."""
    with contextlib.suppress(OSError):
        _failure(cache_folder() / "native", recipe).unlink(missing_ok=True)


def load(recipe: Recipe | None = None, log: Callable[[str], None] = lambda _: None) -> ModuleType:
    """The compiled module, built first if need be (10 to 60 seconds, once).

    BuildError if that fails, or failed before with the same torch, Python and compiler.
    """
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
        raise BuildError(f"the compiled collector does not load: {one_line(str(error))}") from error
    sys.modules[MODULE] = module
    return module


class _KilledError(BuildError):
    """By a signal, which says nothing of what it compiled."""


def _build(recipe: Recipe, log: Callable[[str], None]) -> Path:
    _raise_if_failed(recipe)
    folder = _writable_folder(log)
    with _locked(folder):
        # Another process may have been faster, with either outcome.
        final = folder / f"{MODULE}-{recipe.key}.so"
        if final.exists():
            return final
        _raise_if_failed(recipe)
        log(f"building the collector for torch {torch_part().__version__}, once")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as work:
            built = Path(work) / final.name
            try:
                _compile(recipe, Path(work), built)
            except BuildError as error:
                # A full disk says nothing about the next start, nor does who ended the program while it was built.
                if "No space left" not in str(error) and not isinstance(error, _KilledError):
                    _remember(_failure(folder, recipe), str(error))
                raise
            os.replace(built, final)
        _forget_old(folder, final)
        return final


def _remember(path: Path, why: str) -> None:
    with contextlib.suppress(OSError):
        path.write_text(why, encoding="utf-8")
        path.chmod(0o644)


def _raise_if_failed(recipe: Recipe) -> None:
    if why := failed_before(recipe):
        raise BuildError(f"{why} (as before; `lanewise doctor --build` tries again)")


def _failure(folder: Path, recipe: Recipe) -> Path:
    return folder / f"{MODULE}-{recipe.key}.failed"


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
    objects = [frames]
    with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        calls: list[concurrent.futures.Future[None]] = []
        for source in sorted(_SOURCES.glob("*.cpp")):
            objects.append(work / f"{source.stem}.o")
            words = [f"-std={recipe.standard}", "-c", *recipe.flags, *include, str(source), "-o", str(objects[-1])]
            calls.append(pool.submit(_call, [recipe.compiler, *words]))
        for call in concurrent.futures.as_completed(calls):
            if (error := call.exception()) is not None:
                pool.shutdown(wait=True, cancel_futures=True)
                raise error
    link = [word for folder in recipe.link for word in ("-L", folder)]
    _call(
        [
            recipe.compiler, "-shared", *recipe.flags, *map(str, objects), "-o", str(target),
            *link, "-ltorch_cpu", "-lc10", "-ldl", "-lrt", "-lpthread",
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
    if done.returncode < 0:
        raise _KilledError(f"{os.path.basename(words[0])} was ended by signal {-done.returncode}")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise BuildError(f"{os.path.basename(words[0])} cannot compile the collector: {one_line(errors[0])}")


def _version_of(compiler: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [compiler, "-dumpfullversion", "-dumpversion", "-dumpmachine"],
            capture_output=True, text=True, errors="replace", timeout=20, check=False,
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


def _writable_folder(log: Callable[[str], None]) -> Path:
    """The cache, or a folder of this process's own where the cache cannot be written."""
    folder = cache_folder() / "native"
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
        built = sorted(folder.glob(f"{MODULE}-*.*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in [path for path in built if path != keep][most - 1 :]:
            path.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    """Code is loaded only from files that nobody else could have written."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022
