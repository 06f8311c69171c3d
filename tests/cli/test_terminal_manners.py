"""What a person at a terminal gets: the sign of microseconds, completion, and something to see at once."""

from __future__ import annotations

import io
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from lanewise.bundled import bundled_path
from lanewise.cli.common import console, counted
from lanewise.cli.plain import as_given, as_shown
from lanewise.micro import with_micro

MNIST = str(bundled_path("mnist"))


class Stream(io.TextIOWrapper):
    """Standard output or error, of an encoding."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def shown(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


TOLD = "3.5 us, 12 us; 4 ushers, status, us, 7us"
SIGNED = "3.5 µs, 12 µs; 4 ushers, status, us, 7us"


@pytest.mark.parametrize(
    ("encoding", "terminal", "shown"),
    [("utf-8", True, SIGNED), ("latin-1", True, SIGNED), ("ascii", True, TOLD), ("utf-8", False, TOLD)],
)
def test_microseconds_have_their_sign_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, encoding: str, terminal: bool, shown: str
) -> None:
    out, err = Stream(encoding, terminal), Stream(encoding, terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    as_shown()
    as_shown()
    try:
        console().print(TOLD)
        click.echo(TOLD)
        click.echo(TOLD, err=True)
        print(TOLD, file=sys.stderr)
        console(into := io.StringIO()).print(TOLD)
    finally:
        as_given()
    print(TOLD)
    assert (sys.stdout, sys.stderr) == (out, err)
    assert out.shown() == f"{shown}\n{shown}\n{TOLD}\n"
    assert err.shown() == f"{shown}\n{shown}\n"
    assert into.getvalue().strip() == TOLD


def test_so_they_have_where_a_line_ends_between_number_and_unit() -> None:
    assert with_micro("7.74 \x1b[0m\n\x1b[1mus), 4\nushers") == "7.74 \x1b[0m\n\x1b[1mµs), 4\nushers"


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "lanewise: 3.5 µs"), ("ascii", "lanewise: 3.5 us")])
def test_so_they_have_inside_of_a_program(encoding: str, shown: str) -> None:
    said, _ = on_a_terminal("-c", "from lanewise.capture.say import say; say('3.5 us')", encoding=encoding)
    assert said.strip() == shown


def on_a_terminal(*words: str, encoding: str) -> tuple[str, float]:
    """What Python prints on a terminal of 100 columns, and after how many seconds the first of it came."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "100", "TERM": "xterm"}
    begun = time.perf_counter()
    program = subprocess.Popen([sys.executable, *words], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text, first = b"", 0.0
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # Linux: the other end is closed
            part = b""
        if not part:
            break
        first = first or time.perf_counter() - begun
        text += part
    program.wait()
    os.close(ours)
    return re.sub("\x1b\\[[0-9;]*m", "", text.decode(encoding, "replace")), first


@pytest.mark.parametrize(("encoding", "unit", "other"), [("utf-8", " µs", " us"), ("ascii", " us", "µ")])
def test_a_report_on_a_terminal(encoding: str, unit: str, other: str) -> None:
    text, _ = on_a_terminal("-m", "lanewise", "explain", MNIST, encoding=encoding)
    assert unit in text
    assert other not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_demo_says_something_before_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))

    def first(*words: str) -> float:
        return on_a_terminal(*words, encoding="utf-8")[1]

    # Two seconds; on a machine that is busy with other things as many times what an interpreter takes that only prints.
    bare = ("-c", "print(1)")
    assert any(first("-m", "lanewise", "demo", "mnist") < max(2.0, 20 * first(*bare)) for _ in range(5))


def completed(*words: str) -> list[str]:
    environment = os.environ | {
        "_LANEWISE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("lanewise", *words)),
        "COMP_CWORD": str(len(words)),
    }
    code = "import sys; sys.argv = ['lanewise']; from lanewise.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_options_tables_and_files_are_completed() -> None:
    assert completed("exp") == ["plain,explain", "plain,export"]
    assert "plain,--format" in completed("explain", "--fo")
    assert completed("table", "x", "roof") == ["plain,roofline"]
    for words in (("explain", "tra"), ("diff", "a", "tra"), ("run", "tra"), ("run", "--stacks", "tra"), ("fix", "tra")):
        assert completed(*words) == ["file,tra"]
    script = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['lanewise']; from lanewise.cli.main import main; main()"],
        env=os.environ | {"_LANEWISE_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
    ).stdout
    assert "complete " in script
    assert "_LANEWISE_COMPLETE=bash_complete" in script


def test_what_takes_long_counts_on_a_terminal_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lanewise.cli.common._PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with counted("ranks read") as advance:
        assert advance is not None
        advance(1, 1024)
        advance(1024, 1024)
    said = capsys.readouterr().err
    assert "ranks read 1 of 1,024" in said
    assert said.endswith("\r\x1b[2K")


def test_in_a_pipe_nothing_is_counted() -> None:
    with counted("ranks read") as advance:
        assert advance is None
