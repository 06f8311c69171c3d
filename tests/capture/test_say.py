"""A line of ours never raises, and never lands in what the program has put in the place of its standard error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")


def said(body: str, **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import os, sys\nfrom lanewise.capture.say import say\n{body}"],
        env={**os.environ, "PYTHONPATH": SOURCE},
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams),  # type: ignore[call-overload]
        text=True,
        timeout=60,
        check=False,
    )


def test_a_line_is_said() -> None:
    done = said("say('hello'); say('\\u2192')")
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "lanewise: hello")


@pytest.mark.parametrize(
    "body",
    [
        "os.close(2)",
        "sys.stderr = None",
        "sys.stderr.close()",
        "os.close(2); os.closerange(0, 100)",
        "import io; sys.stderr = io.BytesIO()",
    ],
)
def test_without_a_standard_error_nothing_happens(body: str) -> None:
    done = said(f"{body}\nsay('hello')\nos._exit(7)")
    assert done.returncode == 7


def test_a_full_disk_and_a_pipe_without_a_reader_are_nothing_to_the_program() -> None:
    with open("/dev/full", "w") as full:
        assert said("say('hello'); os._exit(7)", stderr=full).returncode == 7
    reading, writing = os.pipe()
    os.close(reading)
    try:
        # Its default action, which many programs restore, would end the process.
        body = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); say('hello'); os._exit(7)"
        assert said(body, stderr=writing).returncode == 7
    finally:
        os.close(writing)


def test_a_file_of_the_program_in_its_place_gets_nothing_and_the_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = said(
        f"kept = os.dup(2); os.close(2); file = os.open({str(log)!r}, os.O_CREAT | os.O_WRONLY)\n"
        "assert file == 2; say('first'); os.dup2(kept, 2); say('second')"
    )
    assert log.read_text() == ""
    assert done.stderr == "lanewise: first\nlanewise: second\n"
