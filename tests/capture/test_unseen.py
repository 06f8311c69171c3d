"""What no recording of a process shows is said, with how to see it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.capture.test_run import TRAIN, Ran, Shell

pytest.importorskip("torch")

BUSY = """
import time
def burn(seconds):
    begin = time.thread_time()
    while time.thread_time() - begin < seconds: sum(range(1000))
"""
STEPS = TRAIN + "train(60)\n"
WORK = "import torch\ntorch.ones(9) + 1\n"


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.started:
        process.kill()
        process.communicate()


def faults(ran: Ran) -> str:
    return str(ran.facts.get("faults", ""))


CHILDREN = {
    "spawn": "import multiprocessing\nprocesses = [multiprocessing.get_context('spawn').Process(target=burn, args=(1.5,)) "
    "for _ in range(2)]\n[p.start() for p in processes]; [p.join() for p in processes]\n",
    "fork": "import multiprocessing\nprocesses = [multiprocessing.get_context('fork').Process(target=burn, args=(1.5,)) "
    "for _ in range(2)]\n[p.start() for p in processes]; [p.join() for p in processes]\n",
    "pool": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(2) as pool: list(pool.map(burn, [1.5, 1.5]))\n",
    "subprocess": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', "
    "'import time\\nwhile time.process_time() < 1.5: pass'])\n",
    "running": "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', "
    "'import time\\nwhile time.process_time() < 1.5: pass\\ntime.sleep(2)'])\ntime.sleep(2.5)\n",
    "os.fork": "import os\npid = os.fork()\nif pid == 0: burn(1.5); os._exit(0)\nos.waitpid(pid, 0)\n",
}


@pytest.mark.parametrize(
    "kind",
    [
        "fork",
        "subprocess",
        "running",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("os.fork", "spawn", "pool")),
    ],
)
def test_child_processes_are_said(shell: Shell, kind: str) -> None:
    main = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in CHILDREN[kind].splitlines())
    ran = shell.run("--whole", shell.script(WORK + BUSY + main))
    assert "ran (" in faults(ran)
    assert "lanewise.record() in the function that they run" in ran.err
    assert ("2 child processes ran" in ran.err) == (kind in ("spawn", "fork", "pool"))
    assert "recorded what one thread did, without steps" in ran.err


def test_where_all_work_is_in_children_that_is_why_nothing_was_recorded(shell: Shell) -> None:
    main = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in CHILDREN["fork"].splitlines())
    ran = shell.run(shell.script("import torch\nclass Net(torch.nn.Module): pass\n" + BUSY + main))
    assert "nothing was recorded: this process made no step" in ran.err
    assert "2 child processes ran" in ran.err
    assert "--whole" not in ran.err


THREADS = "import threading\nthread = threading.Thread(target=burn, args=(1.0,)); thread.start(); thread.join()\n"


RUNNING = THREADS.replace("; thread.join()", "") + "import time; time.sleep(1.5)\n"


@pytest.mark.parametrize("body", [THREADS, pytest.param(RUNNING, marks=pytest.mark.slow)], ids=["ended", "running"])
def test_other_threads_are_said(shell: Shell, body: str) -> None:
    ran = shell.run("--whole", shell.script(WORK + BUSY + body))
    assert "--all-threads records them" in ran.err
    assert "other threads used" in faults(ran)
    assert "all there is" not in ran.err


def test_what_exit_handlers_do_is_in_the_recording(shell: Shell) -> None:
    from lanewise.trace.reader import read

    ran = shell.run("--whole", "--no-explain", shell.script(WORK + "import atexit\natexit.register(torch.eye, 7)\n"))
    trace = read(str(ran.trace), cache=False)
    assert "aten::eye" in trace.names


def test_threads_that_run_on_after_the_last_line_are_said(shell: Shell) -> None:
    ran = shell.run("--whole", "--no-explain", shell.script(WORK + BUSY + THREADS.replace("; thread.join()", "")))
    assert "--all-threads records them" in ran.err


def test_of_a_program_without_any_of_them_nothing_is_said(shell: Shell) -> None:
    for words in (("--whole",), ()):
        ran = shell.run(*words, shell.script(STEPS))
        assert ran.trace is not None
        assert not any(word in ran.err for word in ("child process", "other threads")), ran.err


def test_a_recorder_in_the_program_says_what_other_threads_did(shell: Shell) -> None:
    body = (
        "import lanewise\nwith lanewise.record(whole=True) as recorder:\n    torch.eye(3)\n"
        "    thread = threading.Thread(target=burn, args=(1.0,)); thread.start(); thread.join()\n"
        "recorder.stop()\nprint('FAULTS', [fault.code for fault in recorder.recorded.faults])\n"
    )
    name = shell.script(WORK + BUSY + "import threading\n" + body)
    ran = subprocess.run(
        [sys.executable, name], cwd=shell.folder, env=shell.environment, capture_output=True, text=True, timeout=120
    )
    assert "FAULTS ['other-threads']" in ran.stdout, ran.stderr
