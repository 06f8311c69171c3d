"""Every verb works where standard output, the locale or the file system knows no UTF-8."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.corpus import trace_path

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
WORLDS = {"C": C_LOCALE, "ascii": {"PYTHONIOENCODING": "ascii"}, "latin-1": {"PYTHONIOENCODING": "latin-1"}}
VERBS = [
    "explain -v {a}",
    "explain --json {a}",
    "explain --format md {a}",
    "explain --format sarif {a}",
    "explain -o report.txt --format text {a}",
    "table {a} all",
    "table {a} kernels --format csv",
    "chain {a}",
    "tree {a}",
    "tree {a} --json",
    "diff {a} {b}",
    "diff {a} {b} --format md",
    "check {a}",
    "view {a} -o page.html",
    "export {a} --to perfetto -o out.json",
    "rule",
    "rule LAU101",
    "demo item-loop",
    "doctor",
    "explain nothing-é.json",
    "run nothing-é.py",
]


def lanewise(words: list[str], folder: Path, world: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF"))}
    line = [sys.executable, "-m", "lanewise", *words]
    return subprocess.run(line, cwd=folder, env=environment | world, capture_output=True, timeout=300, check=False)


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, str]:
    """Two traces in a folder whose name is not ASCII."""
    folder = tmp_path / "größer→"
    folder.mkdir()
    names = {"a": "07_bad_item_loop", "b": "07_bad_host_stall"}
    return {key: str(shutil.copy(trace_path(name), folder)) for key, name in names.items()}


def assert_fine(done: subprocess.CompletedProcess[bytes], codes: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode in codes, said
    assert "internal error" not in said
    assert "Traceback" not in said
    assert "UnicodeEncodeError" not in said


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_in_the_c_locale(verb: str, traces: dict[str, str], tmp_path: Path) -> None:
    done = lanewise([word.format(**traces) for word in verb.split()], tmp_path, C_LOCALE)
    assert_fine(done)
    done.stdout.decode()  # data stays UTF-8
    if "{b}" not in verb and verb.split()[0] in {"explain", "table", "chain", "tree"} and "nothing" not in verb:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("world", ["ascii", "latin-1"])
@pytest.mark.parametrize("verb", ["explain -v {a}", "tree {a}", "diff {a} {b}"])
def test_another_encoding_of_the_output(verb: str, world: str, traces: dict[str, str], tmp_path: Path) -> None:
    done = lanewise([word.format(**traces) for word in verb.split()], tmp_path, WORLDS[world])
    assert_fine(done, (0, 2))
    text = done.stdout.decode(world)
    if verb.startswith("explain"):
        assert "\n  - " in text or " · " in text  # marks stay marks


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes")
def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"trace-\xff\xfe.json.gz")
    shutil.copy(trace_path("07_bad_item_loop"), path)
    for words in (["explain"], ["explain", "--json"], ["tree"], ["table"], ["chain"]):
        line = [os.fsencode(sys.executable), b"-m", b"lanewise", words[0].encode(), path, *map(os.fsencode, words[1:])]
        assert_fine(subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=300, check=False), (0,))


@pytest.mark.skipif(find_spec("torch") is None, reason="records a program")
def test_a_program_finds_its_streams_as_python_makes_them(tmp_path: Path) -> None:
    program = "import sys; sys.stderr.write(f'{sys.stdout.errors} {sys.stderr.errors}\\n'); print('\\u2026')"
    (tmp_path / "é.py").write_text(program, encoding="utf-8")
    plain = subprocess.run(
        [sys.executable, "é.py"], cwd=tmp_path, env=os.environ | WORLDS["ascii"], capture_output=True, check=False
    )
    for verb in ("run", "watch"):
        done = lanewise([verb, "-q", "é.py"], tmp_path, WORLDS["ascii"])
        assert done.returncode == plain.returncode == 1
        assert done.stderr.splitlines()[0] == plain.stderr.splitlines()[0]
