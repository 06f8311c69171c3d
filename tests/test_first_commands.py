"""`make demo` and `make test` on a machine that has nothing yet: what they bring, and from where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
BARE = {"PATH": os.environ["PATH"]}
"""Without what a `make` that runs these tests hands on."""

pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("make") is None, reason="needs make and a shell")


def environment(folder: Path, torch_at: Path, *options: str) -> str:
    """Makes one from a Python that has a torch at `torch_at`; says where the new one finds torch."""
    venv.create(folder, symlinks=True)  # by itself: what takes time is pip, and the script lets be what exists
    subprocess.run(
        [sys.executable, SCRIPTS / "make_environment.py", folder, *options],
        env=BARE | {"PYTHONPATH": str(torch_at)},
        check=True,
    )
    code = "import importlib.util as u; found = u.find_spec('torch'); print(found and found.origin)"
    return subprocess.run(
        [folder / "bin" / "python", "-c", code], capture_output=True, text=True, env={}
    ).stdout.strip()


def test_an_environment_is_lent_the_torch_that_is_there_unless_told_otherwise(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / "torch" / "__init__.py"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    assert environment(tmp_path / "with", theirs.parents[1]) == str(theirs)
    assert environment(tmp_path / "without", theirs.parents[1], "--without-torch") == "None"


PIP = """#!/bin/sh
echo "pip $*" >>"$0.calls"
case "$*" in
  *--report*) [ "$PLAN" = fails ] && exit 1; shift $(($# - 2)); echo "$PLAN" >"$1" ;;
esac
"""
UV = """#!/bin/sh
echo "uv $*" >>"$(dirname "$0")/pip.calls"
[ "$UV_HAS" = yes ]
"""
PYTHON = "#!/bin/sh\nexit 1\n"
CUDA, CPU, NONE = '{"name": "nvidia-cublas"}', '{"name": "torch", "requires_dist": ["nvidia-cublas; extra"]}', "fails"


@pytest.mark.parametrize(
    ("plan", "uv_has", "options", "last", "code"),
    [
        (CPU, "no", [], "pip install torch==2.13.0", 0),
        (CUDA, "yes", [], "uv pip install --torch-backend=cpu torch==2.13.0", 0),
        (CUDA, "no", ["or-none"], "uv pip install --torch-backend=cpu torch==2.13.0", 0),
        (CUDA, "no", [], "pip install torch==2.13.0", 0),
        (NONE, "no", ["or-none"], "uv pip install --torch-backend=cpu torch==2.13.0", 0),
    ],
    ids=["cpu from pip", "cpu from uv", "none for this machine", "none, and asked for", "pip knows none"],
)
def test_a_cpu_build_of_torch_is_brought_and_no_gigabytes(
    plan: str, uv_has: str, options: list[str], last: str, code: int, tmp_path: Path
) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in (("pip", PIP), ("uv", UV), ("python", PYTHON)):
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    ran = subprocess.run(
        [SCRIPTS / "bring_torch.sh", tmp_path, "torch==2.13.0", *options],
        env=BARE | {"PLAN": plan, "UV_HAS": uv_has},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == code, ran.stderr
    called = (binaries / "pip.calls").read_text().splitlines()[-1]
    for dropped in ("--disable-pip-version-check ", "--quiet ", f"--python {binaries}/python "):
        called = called.replace(dropped, "")
    assert called == last
    assert ("tests that need torch are left out" in ran.stdout) == (bool(options) and uv_has == "no")


def test_the_first_line_comes_before_any_work(tmp_path: Path) -> None:
    command = ["make", "demo", f"VENV={tmp_path / 'env'}", "PYTHON=false"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=BARE)
    assert ran.stdout.splitlines()[0] == f"Making a virtual environment in {tmp_path / 'env'} ..."
    assert ran.returncode != 0


def test_check_is_what_ci_runs_and_that_tests_without_torch_and_with_it(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    for name in ("make", "npm", "g++", "chromium"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\n')
        tool.chmod(0o755)
    make = shutil.which("make") or "make"
    found = BARE | {"PATH": f"{tmp_path}:{BARE['PATH']}"}
    for command, torch in (
        ([REPOSITORY / ".ci" / "run"], "torch==2.13.0"),
        ([make, "check"], "torch==2.13.0"),
        ([make, "check", "TORCH=torch==2.14.0"], "torch==2.14.0"),
    ):
        calls.unlink(missing_ok=True)
        subprocess.run(command, cwd=REPOSITORY, check=True, env=found, capture_output=True)
        setup, *beside = calls.read_text().splitlines()
        assert setup == f"make setup TORCH={torch}"
        # Two lines of work at the same time, and then the tests.
        checks, tests = beside[:-2], beside[-2:]
        page = [f"make page readers TORCH={torch}", "make setup TORCH=none"]
        assert sorted(checks) == sorted([f"make lint types layers docs-check TORCH={torch}", *page])
        assert tests == [
            "make test TORCH=none",
            f"make test TORCH={torch} WITHOUT=tests/web MORE=--where-torch-matters",
        ]


@pytest.mark.parametrize("failing", ["setup", "page", "lint"])
def test_nothing_is_tested_after_a_check_that_failed(failing: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    for name in ("make", "npm", "g++", "chromium"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n[ "$1" != {failing} ]\n')
        tool.chmod(0o755)
    found = BARE | {"PATH": f"{tmp_path}:{BARE['PATH']}"}
    done = subprocess.run([REPOSITORY / ".ci" / "run"], cwd=REPOSITORY, env=found, capture_output=True, check=False)
    assert done.returncode != 0
    assert not any(line.startswith("test") for line in calls.read_text().splitlines())
