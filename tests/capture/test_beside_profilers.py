"""Programs with profilers or threads of their own: theirs win, ours gives way, and neither ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from lanewise.capture.profiling.profiler import Flags, Session, has_rows  # noqa: E402
from lanewise.capture.recorder import handler  # noqa: E402
from lanewise.errors import LanewiseError  # noqa: E402

SOURCE = str(Path(__file__).parents[2] / "src")

LOOP = """
import threading, torch
from torch.profiler import profile, ProfilerActivity
torch.set_num_threads(1)
net, x = torch.nn.Linear(8, 8).eval(), torch.ones(2, 8)
def loop(n):
    with torch.no_grad():
        for _ in range(n): net(x)
def in_thread(work, *args):
    thread = threading.Thread(target=work, args=args); thread.start(); thread.join()
def mine():
    with profile(activities=[ProfilerActivity.CPU]) as p: loop(5)
    print("mine", sum(k.count for k in p.key_averages() if k.key == "aten::addmm"))
"""

PROGRAMS = {
    "one thread per request": "for _ in range(150): in_thread(loop, 1)",
    "a worker that ends while it is recorded": "in_thread(loop, 35); loop(20)",
    "a worker that does not end": (
        "import time\nrun = threading.Event()\ndef worker():\n    loop(30); run.set(); time.sleep(1000)\n"
        "threading.Thread(target=worker, daemon=True).start(); run.wait()"
    ),
    "nested profilers": """
with profile(activities=[ProfilerActivity.CPU]) as a:
    loop(1)
    try:
        with profile(activities=[ProfilerActivity.CPU]) as b: loop(1)
    except RuntimeError as error: print(error)
""",
    "a profiler while a step is recorded": "loop(30); mine(); loop(60); mine()",
    "a profiler on another thread": "loop(30); in_thread(mine); loop(60)",
    "a profiler beside steps of a worker": "in_thread(loop, 30); mine(); loop(60)",
    "markers": "loop(30)\nwith torch.autograd.profiler.emit_itt(): loop(3)\nloop(60)",
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


QUICK = ("a worker that does not end", "a profiler while a step is recorded", "markers")


@pytest.mark.parametrize(
    "verb",
    [["run", "--no-explain"], pytest.param(["watch", "--way", "windows", "--every", "5"], marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_the_program_runs_as_without_us(name: str, verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOOP + PROGRAMS[name] + "\nprint('end')\n")
    plain = run(tmp_path, "program.py")
    ours = run(tmp_path, "-m", "lanewise", *verb, "program.py")
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr
    assert (plain.returncode, "end" in plain.stdout) == (0, True)
    assert "Traceback" not in ours.stderr
    assert not list(tmp_path.glob("lanewise-out/.recording-*"))


def test_a_thread_per_request_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOOP + PROGRAMS["one thread per request"])
    done = run(tmp_path, "-m", "lanewise", "run", "--no-explain", "--active", "10", "program.py")
    assert "recorded 10 steps" in done.stderr
    from lanewise.trace.reader import read

    assert read(str(tmp_path / "lanewise-out" / "program.json.gz"), cache=False).steps.recorded


def test_a_session_is_not_stopped_on_a_thread_that_has_none() -> None:
    session = Session(Flags(), "cpu")
    session.prepare()
    session.start()
    errors: list[BaseException] = []

    def stop() -> None:
        try:
            session.stop()
        except LanewiseError as error:
            errors.append(error)

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    assert len(errors) == 1
    torch.autograd._disable_profiler()


def test_a_profiler_without_rows_has_nothing_to_export(tmp_path: Path) -> None:
    with torch.profiler.profile() as ran:
        torch.ones(2)
    never = torch.profiler.profile()
    assert (has_rows(ran), has_rows(never), has_rows(ran.profiler), has_rows(None)) == (True, False, True, False)
    save = handler(tmp_path)
    with pytest.warns(UserWarning, match="kept no rows"):
        save(never)
    assert "kept no rows" in save.problem
