"""However a watched program ends, it ends as it would have, and its tree is there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lanewise.tree.tree_file import load
from tests.capture.context.paths import calls

LOOP = """
import signal, sys, time, torch
x = torch.ones(2)
{before}
print("ready", flush=True)
while True: {body}
"""


def start(folder: Path, code: str, *options: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(code)
    words = [sys.executable, "-m", "lanewise", "watch", *options, "train.py"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=_signals_as_usual)


def _signals_as_usual() -> None:
    # Tests that run under `nohup` ignore SIGHUP, and so would the program.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def end_by(process: subprocess.Popen[str], number: int) -> tuple[str, str, float]:
    """Output, errors and seconds from the signal to the end."""
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(number)
        begin = time.monotonic()
        out, said = process.communicate(timeout=100)
        return out, said, time.monotonic() - begin
    finally:
        process.kill()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow), signal.SIGUSR1]
)
def test_a_signal_ends_it_by_the_signal_after_the_tree_is_written(tmp_path: Path, number: signal.Signals) -> None:
    # No other file is written before: it must be the signal's.
    process = start(tmp_path, LOOP.format(before="", body="x.add(x)"), "--save-every", "0")
    _, said, _ = end_by(process, number)
    assert process.returncode == -number
    assert number.name in said
    assert "Traceback" not in said
    assert calls(load(tmp_path / "train.lw"), "aten::add") > 0
    assert not list(tmp_path.glob(".*.part"))


def test_the_programs_own_handler_is_the_one_that_counts(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    process = start(tmp_path, LOOP.format(before=before, body="x.add(x)"))
    _, said, _ = end_by(process, signal.SIGTERM)
    assert process.returncode == 7, said
    assert "SIGTERM" not in said
    assert calls(load(tmp_path / "train.lw"), "aten::add") > 0


def test_python_still_sees_the_default(tmp_path: Path) -> None:
    code = "import signal, torch\ntorch.ones(2).add(1)\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    out, _ = start(tmp_path, code).communicate(timeout=100)
    assert out == "True\n"


def test_a_program_that_keeps_the_lock_of_python_ends_all_the_same(tmp_path: Path) -> None:
    # One call into C for a minute or more, with the GIL.
    process = start(tmp_path, LOOP.format(before="x.add(x); time.sleep(2)", body="sum(range(10**11))"))
    _, _, seconds = end_by(process, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    assert seconds < 30
    assert calls(load(tmp_path / "train.lw"), "aten::add") >= 1


def test_a_forked_child_dies_by_the_signal_and_leaves_the_file_alone(tmp_path: Path) -> None:
    code = """
import os, signal, time, torch
x = torch.ones(2)
x.add(x)
child = os.fork()
if child == 0:
    for _ in range(100):
        x.mul(x)
    time.sleep(60)
time.sleep(0.3)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
x.add(x)
"""
    process = start(tmp_path, code, "--save-every", "0")
    out, _ = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "-15\n")
    tree = load(tmp_path / "train.lw")
    assert calls(tree, "aten::mul") == 0
    assert calls(tree, "aten::add") == 2


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(3)", 3),
        pytest.param("os.abort()", -signal.SIGABRT, marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), 9)", -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_an_end_that_nobody_can_see_leaves_a_recent_file(tmp_path: Path, end: str, code: int) -> None:
    body = f"""
import os, time, torch
x = torch.ones(2)
begin = time.monotonic()
while time.monotonic() - begin < 1: x.add(x)
for _ in range(1000): x.mul(x)
while time.monotonic() - begin < 3: x.add(x)
{end}
"""
    process = start(tmp_path, body, "--save-every", "0.5")
    process.communicate(timeout=100)
    assert process.returncode == code
    # The file is younger than what the program did in its last seconds is old.
    assert calls(load(tmp_path / "train.lw"), "aten::mul") == 1000


def test_a_short_program_that_exits_at_once_leaves_a_file(tmp_path: Path) -> None:
    body = "import os, time, torch\ntorch.ones(2).add(1)\ntime.sleep(1.5)\nos._exit(0)"
    start(tmp_path, body).communicate(timeout=100)
    assert calls(load(tmp_path / "train.lw"), "aten::add") == 1


def test_signals_are_given_back(tmp_path: Path) -> None:
    code = """
import time, torch, lanewise
with lanewise.watch("own.lw", measure=False):
    torch.ones(1).add(1)
# Which signals have a handler, as the system sees it.
caught = next(line for line in open("/proc/self/status") if line.startswith("SigCgt"))
print("ready" if not int(caught.split()[1], 16) >> 14 & 1 else "SIGTERM is still taken", flush=True)
time.sleep(100)
"""
    (tmp_path / "train.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _, said, _ = end_by(process, signal.SIGTERM)
    assert (process.returncode, said) == (-signal.SIGTERM, "")
    assert calls(load(tmp_path / "own.lw"), "aten::add") == 1
