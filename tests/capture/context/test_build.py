"""Compiling the collector: the standard is torch's to say, what is missing is said at once, a failure is remembered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lanewise.capture.context import native_build as build
from lanewise.capture.context.compiler import BuildError, find_compiler, standards

GUARD = "#if !defined(_MSC_VER) && __cplusplus < 20{}L\n#error C++ or later compatible compiler is required\n#endif\n"


def torch_folder(root: Path, guard: str, own: str) -> Path:
    """A torch of which only what says the standard is there."""
    header = root / "include" / "ATen" / "ATen.h"
    header.parent.mkdir(parents=True)
    header.write_text(GUARD.format(guard) if guard else "#pragma once\n")
    (root / "utils").mkdir()
    (root / "utils" / "cpp_extension.py").write_text(f"cflags += ['-fPIC', '{own}']\n")
    return root


def compiler(path: Path, body: str) -> Path:
    """A compiler that does `body` first and is g++ otherwise; it writes down its calls."""
    path.write_text(f'#!/bin/sh\necho "$*" >>"{path}.calls"\n{body}\nexec {shutil.which("g++")} "$@"\n')
    path.chmod(0o755)
    return path


def compiled(path: Path) -> int:
    """How often it was asked to compile something of ours."""
    calls = Path(f"{path}.calls")
    return sum("native/" in line for line in calls.read_text().splitlines()) if calls.exists() else 0


def watch(folder: Path, cxx: Path) -> str:
    """What `lanewise watch` says with this compiler; the program's own result is checked."""
    (folder / "train.py").write_text("import torch\nprint(torch.ones(2).add(1).sum().item())\n")
    env = {**os.environ, "CXX": str(cxx), "LANEWISE_CACHE_DIR": str(folder / "cache")}
    words = [sys.executable, "-m", "lanewise", "watch", "--force", "train.py"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert (done.returncode, done.stdout) == (0, "4.0\n")
    return done.stderr


@pytest.mark.parametrize(
    ("guard", "own", "found"),
    [
        ("1703", "-std=c++17", (17, 17)),
        ("1703", "-std=c++20", (17, 20)),
        ("2002", "-std=c++20", (20, 20)),
        ("2302", "/std:c++20", (23, 23)),
        ("2603", "", (26, 26)),
        ("", "", (17, 17)),
    ],
)
def test_the_standard_is_what_torch_says(tmp_path: Path, guard: str, own: str, found: tuple[int, int]) -> None:
    assert standards(torch_folder(tmp_path, guard, own)) == found


def test_the_standard_of_this_torch_is_one_that_its_headers_take() -> None:
    import torch

    oldest, own = standards(Path(torch.__file__).parent)
    assert 17 <= oldest <= own
    assert build.make_recipe().standard in (f"c++{oldest}", f"c++{own}")


REFUSES_20 = 'case "$*" in *-std=c++20*) echo "error: unrecognized option" >&2; exit 1;; esac'
NOT_YET_20 = 'case "$*" in *-std=c++20*) set -- "$@" -U__cplusplus -D__cplusplus=201709L;; esac'
"""GCC 9 and GCC 10."""


@pytest.mark.parametrize("body", [REFUSES_20, NOT_YET_20])
def test_an_old_compiler_takes_the_older_standard_or_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    old = compiler(tmp_path / "g++-old", body)
    monkeypatch.setenv("CXX", str(old))
    assert find_compiler(torch_folder(tmp_path / "a", "1703", "-std=c++20"), "2.12.0") == (str(old), "c++17")
    with pytest.raises(BuildError, match=r"torch 2\.14\.1 need C\+\+20, which g\+\+-old .*apt install"):
        find_compiler(torch_folder(tmp_path / "b", "2002", "-std=c++20"), "2.14.1")


def test_a_newer_compiler_beside_the_usual_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path / "g++", REFUSES_20)
    compiler(tmp_path / "g++-9", REFUSES_20)
    newer = compiler(tmp_path / "g++-12", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/sbin")
    monkeypatch.setattr(shutil, "which", _only_in(tmp_path))
    assert find_compiler(torch_folder(tmp_path / "t", "2002", "-std=c++20"), "2.14.1") == (str(newer), "c++20")


def _only_in(folder: Path) -> object:
    return lambda name: str(folder / name) if (folder / name).exists() else None


def test_a_compiler_without_its_library_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = compiler(tmp_path / "g++-bare", 'set -- "$@" -nostdinc++')
    monkeypatch.setenv("CXX", str(bare))
    with pytest.raises(BuildError, match=r"lacks the C\+\+ standard library .*apt install"):
        find_compiler(torch_folder(tmp_path / "t", "2002", "-std=c++20"), "2.14.1")


def test_what_is_missing_is_the_first_line_and_nothing_is_compiled(tmp_path: Path) -> None:
    none = compiler(tmp_path / "g++-none", 'case "$*" in *-std=*) exit 1;; esac')
    said = watch(tmp_path, none).splitlines()
    assert "does not know" in said[0]
    assert "apt install" in said[0]
    assert "short profiler windows" in said[0]
    assert compiled(none) == 0


def test_a_build_that_failed_is_not_tried_at_every_start(tmp_path: Path) -> None:
    broken = compiler(
        tmp_path / "g++-broken", 'case "$*" in *native/*) echo "x.h:1: error: no such thing" >&2; exit 1;; esac'
    )
    first = watch(tmp_path, broken)
    assert "g++-broken cannot compile the collector: x.h:1: error: no such thing" in first
    tried = compiled(broken)
    assert tried > 0
    again = watch(tmp_path, broken).splitlines()
    assert compiled(broken) == tried
    assert "no such thing" in again[0]
    assert "lanewise doctor --build" in again[0]


def test_a_failure_is_forgotten_when_asked_and_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    recipe = build.make_recipe(extra_flags=("-no-such-flag",))
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(BuildError, match="no-such-flag"):
            build._build(recipe, said.append)
    assert len(said) == 1
    assert "no-such-flag" in build.failed_before(recipe)
    assert build.failed_before(build.make_recipe(extra_flags=("-another",))) == ""
    (kept,) = (tmp_path / "native").glob("*.failed")
    long_ago = time.time() - 8 * 86400
    os.utime(kept, (long_ago, long_ago))
    assert build.failed_before(recipe) == ""
    os.utime(kept)
    build.forget(recipe)
    assert build.failed_before(recipe) == ""


@pytest.mark.parametrize(
    ("act", "why"),
    [('echo "error: No space left on device" >&2; exit 1', "No space left"), ("kill -TERM $$", "ended by signal 15")],
)
def test_what_says_nothing_of_the_next_start_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, why: str
) -> None:
    full = compiler(tmp_path / "g++-full", f'case "$*" in *native/*) {act};; esac')
    monkeypatch.setenv("CXX", str(full))
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    recipe = build.make_recipe()
    with pytest.raises(BuildError, match=why):
        build._build(recipe, lambda _: None)
    assert build.failed_before(recipe) == ""


def test_doctor_has_tried_what_it_says(tmp_path: Path) -> None:
    broken = compiler(tmp_path / "g++-broken", 'case "$*" in *native/*) echo "error: no such thing" >&2; exit 1;; esac')
    code = (
        "import json; from lanewise.cli.doctor import _collector as c; print(json.dumps([c(False), c(False), c(True)]))"
    )
    env = {**os.environ, "CXX": str(broken), "LANEWISE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=170, check=False
    )
    first, second, asked = json.loads(done.stdout)
    assert not first[1]
    assert "no such thing" in first[2]
    assert not second[1]
    assert "as before" in second[2]
    assert not asked[1]
    assert "as before" not in asked[2]
