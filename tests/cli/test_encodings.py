"""Every verb works where standard output, the locale or the file system knows no UTF-8."""

from __future__ import annotations

import json
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


# Runs each command line of a file in turn, as a process of its own would, without the second that one takes to start:
# standard output and error are files of its number, and last comes a line with the exit code.
ONE_AFTER_ANOTHER = """
import json, os, sys
from lanewise.cli.main import main

for number, words in enumerate(json.load(open("commands.json", encoding="utf-8"))):
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{number}.{name}", os.O_CREAT | os.O_WRONLY), stream)
    sys.argv = ["lanewise", *(os.fsdecode(word.encode()) for word in words)]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    with open("codes", "a") as codes:
        codes.write(f"{code}\\n")
"""


def in_world(world: dict[str, str]) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF"))}
    return environment | world


def lanewise(words: list[str], folder: Path, world: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-m", "lanewise", *words]
    return subprocess.run(line, cwd=folder, env=in_world(world), capture_output=True, timeout=300, check=False)


def all_of(lines: list[str], folder: Path, world: dict[str, str]) -> dict[str, subprocess.CompletedProcess[bytes]]:
    """What each command says in a process of that world, on two traces in a folder whose name is not ASCII."""
    traces = folder / "größer→"
    traces.mkdir()
    names = {"a": "07_bad_item_loop", "b": "07_bad_host_stall"}
    paths = {key: str(shutil.copy(trace_path(name), traces)) for key, name in names.items()}
    commands = [[word.format(**paths) for word in line.split()] for line in lines]
    (folder / "commands.json").write_text(json.dumps(commands), encoding="utf-8")
    program = [sys.executable, "-c", ONE_AFTER_ANOTHER]
    subprocess.run(program, cwd=folder, env=in_world(world), timeout=300, check=True)
    codes = [int(code) for code in (folder / "codes").read_text().split()]
    said = [[(folder / f"{number}.{name}").read_bytes() for name in ("out", "err")] for number in range(len(lines))]
    return {
        line: subprocess.CompletedProcess(words, code, *streams)
        for line, words, code, streams in zip(lines, commands, codes, said, strict=True)
    }


def assert_fine(done: subprocess.CompletedProcess[bytes], codes: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode in codes, said
    assert "internal error" not in said
    assert "Traceback" not in said
    assert "UnicodeEncodeError" not in said


@pytest.fixture(scope="module")
def in_the_c_locale(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[bytes]]:
    return all_of(VERBS, tmp_path_factory.mktemp("c"), C_LOCALE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_in_the_c_locale(verb: str, in_the_c_locale: dict[str, subprocess.CompletedProcess[bytes]]) -> None:
    done = in_the_c_locale[verb]
    assert_fine(done)
    done.stdout.decode()  # data stays UTF-8
    if "{b}" not in verb and verb.split()[0] in {"explain", "table", "chain", "tree"} and "nothing" not in verb:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("world", ["ascii", "latin-1"])
def test_another_encoding_of_the_output(world: str, tmp_path: Path) -> None:
    for verb, done in all_of(["explain -v {a}", "tree {a}", "diff {a} {b}"], tmp_path, WORLDS[world]).items():
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
