"""The walk of frames on every interpreter that is installed with its headers; it needs no torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CONTEXT = HERE.parents[2] / "src" / "lanewise" / "capture" / "context"

ABOUT = """
import os, sys, sysconfig
include = sysconfig.get_paths()["include"]
print("%d.%d" % sys.version_info[:2])
print(include)
print(int(os.path.exists(os.path.join(include, "internal", "pycore_frame.h"))))
print(int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))))
"""


def interpreters() -> dict[str, tuple[str, str]]:
    """Path and directory of headers of one interpreter for each version from 3.11 on."""
    minors = range(11, 20)
    paths = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in minors)]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    paths += [str(path) for path in sorted(root.glob("versions/3.1[1-9]*/bin/python"))]
    found: dict[str, tuple[str, str]] = {}
    for path in filter(None, paths):
        # Elsewhere than here, a version that is not chosen makes a command of the same name fail.
        done = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            continue
        version, include, internal, no_gil = done.stdout.split()
        if internal == "1" and no_gil == "0":
            found.setdefault(version, (path, include))
    return found


INTERPRETERS = interpreters()


@pytest.fixture(scope="module")
def compiler() -> str:
    """A C compiler."""
    for name in ("gcc", "cc", "clang"):
        if path := shutil.which(name):
            return path
    pytest.skip("no C compiler")


def compiled(compiler: str, include: str, target: Path, frames: Path = CONTEXT / "native" / "frames.c") -> None:
    words = [compiler, "-O2", "-fPIC", "-shared", "-Wall", "-Werror", "-DLANEWISE_RAW_FRAMES", "-isystem", include]
    words += [f"-I{CONTEXT / 'native'}", str(HERE / "frames_module.c"), str(frames)]
    subprocess.run([*words, "-o", str(target / "frames_module.so")], check=True, timeout=120)


def run(python: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [python, str(HERE / "frames_program.py"), str(folder), str(CONTEXT / "checks" / "frame_checks.py")]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_the_interpreter_of_these_tests_is_one_of_them() -> None:
    if not INTERPRETERS:
        pytest.skip("no interpreter with headers")
    assert all(tuple(map(int, version.split("."))) >= (3, 11) for version in INTERPRETERS)


@pytest.mark.parametrize("version", sorted(INTERPRETERS))
def test_the_raw_walk_agrees_with_python(version: str, compiler: str, tmp_path: Path) -> None:
    python, include = INTERPRETERS[version]
    compiled(compiler, include, tmp_path)
    done = run(python, tmp_path)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("version", sorted(INTERPRETERS))
def test_places_in_loops_are_told_from_others(version: str) -> None:
    words = [INTERPRETERS[version][0], str(HERE / "loops_program.py"), str(CONTEXT / "loops.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("version", sorted(INTERPRETERS))
def test_a_wrong_layout_is_noticed(version: str, compiler: str, tmp_path: Path) -> None:
    """The program above can fail: here each instruction is read one further than it is."""
    python, include = INTERPRETERS[version]
    text = (CONTEXT / "native" / "frames.c").read_text()
    wrong = text.replace(
        "kept->instruction = INSTRUCTION(frame);", "kept->instruction = (const char*)INSTRUCTION(frame) + 2;"
    )
    assert wrong != text
    (tmp_path / "frames.c").write_text(wrong)
    compiled(compiler, include, tmp_path, tmp_path / "frames.c")
    done = run(python, tmp_path)
    assert done.returncode != 0
    assert "assert difference() ==" in done.stderr
