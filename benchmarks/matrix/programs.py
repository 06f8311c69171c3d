"""The programs of the matrix: small, and each a way to end, to say something or to be started that has gone wrong."""

from __future__ import annotations

import compileall
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PROGRAMS", "Case"]

WORK = """
import sys, os, torch
torch.set_num_threads(1)
net, x = torch.nn.Linear(8, 8).eval(), torch.ones(2, 8)
def work(n):
    with torch.no_grad():
        for _ in range(n): net(x)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program.

    Attributes:
        body: its source. words: how it is started after `python`. files: further files by name.
        make: called with the folder before the start. environment: variables to set.
        stdin: what it reads. stderr, stdout: a path to write to, or `closed`, `gone` for a pipe without a reader.
        signal: sent once the program has printed `ready`. small: part of the quick test.
    """

    body: str = ""
    words: tuple[str, ...] = ("program.py",)
    files: dict[str, str] = field(default_factory=dict)
    make: Callable[[Path], object] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    signal: int = 0
    small: bool = False


def _zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "app.zip", "w") as target:
        target.writestr("__main__.py", f"import inner\n{WORK}work(30); print(__name__, __file__, sys.argv, inner.X)\n")
        target.writestr("inner.py", "X = 5\n")


def _folder(folder: Path) -> None:
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(f"import inner\n{WORK}work(30)\nprint(__file__, sys.argv, inner.X)\n")
    (folder / "app" / "inner.py").write_text("X = 6\n")


def _pyc(folder: Path) -> None:
    compileall.compile_file(str(folder / "program.py"), legacy=True, quiet=2)
    os.unlink(folder / "program.py")


_LOOK = """
import traceback
print(sys.argv, sys.path[0], sys.flags.safe_path, __name__, __file__, __package__, __spec__, __cached__)
print(sorted(k for k in os.environ if "LANEWISE" in k or k == "PYTHONPATH"), os.environ.get("PYTHONPATH"))
print(sys.excepthook is sys.__excepthook__, len(traceback.extract_stack()))
print("sitecustomize" in sys.modules, "click" in sys.modules, [p for p in sys.path if "lanewise" in p])
print(sorted(globals())[:8], sys.gettrace(), sys.getprofile(), sys.getrecursionlimit())
"""

_FAIL = "def inner(): raise ValueError('inner')\n"

PROGRAMS: dict[str, Case] = {
    # -- ends
    "plain": Case(body="work(60); print('done')"),
    "exit code": Case(body="work(60); sys.exit(7)"),
    "exit code too large": Case(body="work(60); sys.exit(300)"),
    "exit negative": Case(body="sys.exit(-1)"),
    "exit none": Case(body="work(20); sys.exit()"),
    "exit with a text": Case(body="work(60); sys.exit('that was wrong')"),
    "exit with an object": Case(body="sys.exit({'a': [1]})"),
    "exit in a handler": Case(
        body="import atexit\natexit.register(lambda: print('bye'))\nwork(60); raise SystemExit(3)"
    ),
    "os._exit": Case(body="work(60); print('x', flush=True); os._exit(5)"),
    "abort": Case(body="work(60); print('x', flush=True); os.abort()"),
    "killed": Case(body="work(30); os.kill(os.getpid(), 9)"),
    "SIGTERM": Case(body="import time\nwork(60); print('ready', flush=True); time.sleep(60)", signal=15),
    "SIGINT": Case(body="import time\nwork(60); print('ready', flush=True); time.sleep(60)", signal=2, small=True),
    "SIGINT caught": Case(
        body="import time\nwork(30)\ntry: print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt: print('caught'); sys.exit(4)",
        signal=2,
    ),
    "SIGTERM caught": Case(
        body="import time, signal\nsignal.signal(15, lambda *_: sys.exit(9))\nwork(30)\n"
        "print('ready', flush=True); time.sleep(60)",
        signal=15,
    ),
    "SIGINT ignored": Case(
        body="import time, signal\nsignal.signal(2, signal.SIG_IGN)\nprint('ready', flush=True); time.sleep(1)\nprint(1)",
        signal=2,
    ),
    "SIGHUP": Case(body="import time\nwork(60); print('ready', flush=True); time.sleep(60)", signal=1),
    "raises": Case(body=_FAIL + "work(60)\ninner()", small=True),
    "raises at once": Case(body="1 / 0"),
    "raises from": Case(body=_FAIL + "try: inner()\nexcept ValueError as e: raise KeyError('k') from e"),
    "raises with notes": Case(body="e = RuntimeError('x'); e.add_note('a note'); work(30)\nraise e"),
    "raises a group": Case(body="work(30)\nraise ExceptionGroup('many', [ValueError(1), TypeError(2)])"),
    "raises in forward": Case(
        body="class Bad(torch.nn.Module):\n    n = 0\n    def forward(self, x):\n        self.n += 1\n"
        "        if self.n == 40: raise ValueError('inside')\n        return x\nbad = Bad()\n"
        "while True: bad(x)",
        small=True,
    ),
    "raises while compiled": Case(
        body="class Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
        "net = torch.compile(Net(), backend='eager')\nwith torch.no_grad():\n"
        "    for i in range(40): net(x)\n    print(i)\n"
    ),
    "syntax error": Case(body="def f(:\n", small=True),
    "syntax error in a module": Case(body="import bad", files={"bad.py": "def f(:\n"}),
    "own excepthook": Case(body="sys.excepthook = lambda *a: print('hook', a[0].__name__)\nwork(60)\n1 / 0"),
    "deep recursion": Case(
        body="def f(n):\n    return f(n + 1)\ntry: f(0)\nexcept RecursionError: print('deep')\nwork(60)"
    ),
    "exception in an exit handler": Case(body="import atexit\natexit.register(lambda: 1 / 0)\nwork(60)"),
    # -- what it sees of itself
    "looks around": Case(body=_LOOK, words=("program.py", "a", "-m", "--stop", "b c"), small=True),
    "looks around by a path": Case(body=_LOOK, words=("./program.py",), environment={"PYTHONPATH": "."}),
    "warns of its caller": Case(
        body="import warnings\nwork(30)\nwarnings.warn('old', DeprecationWarning, stacklevel=2)"
    ),
    "frames": Case(body="try: sys._getframe(1)\nexcept ValueError: print('top')"),
    "module": Case(
        words=("-m", "tool", "-m", "x"), files={"tool.py": WORK + "work(60); print(__spec__.name, sys.argv[1:])"}
    ),
    "package": Case(
        words=("-m", "pack.sub"),
        files={
            "pack/__init__.py": "",
            "pack/sub.py": WORK + "from . import other\nwork(30); print(__package__)",
            "pack/other.py": "",
        },
    ),
    "module that is not there": Case(words=("-m", "no_such_module"), small=True),
    "code": Case(words=("-c", WORK + "work(60); print(sys.argv, repr(sys.path[0]))", "-x")),
    "standard input": Case(words=("-", "a"), stdin=WORK + "work(30); print(sys.argv, __name__)\n"),
    "zip file": Case(words=("app.zip", "a"), make=_zip),
    "folder": Case(words=("app", "a"), make=_folder),
    "pyc": Case(body="work(30); print(__name__, sys.argv)", words=("program.pyc",), make=_pyc),
    "modules of our names": Case(
        body="import click, rich, msgspec, polars\nwork(60); print(click.X, rich.X, msgspec.X, polars.X)",
        files={f"{name}.py": "X = 1\n" for name in ("click", "rich", "msgspec", "polars")},
        small=True,
    ),
    "modules of Python's names": Case(
        body="import this, antigravity as q\nprint(q.X)",
        files={"antigravity.py": "X = 2\n", "this.py": "X = 1\n", "shlex.py": "X = 3\n"},
    ),
    "modules of our names on the path": Case(
        body="import click\nwork(60); print(click.X)",
        files={"lib/click.py": "X = 1\n", "lib/msgspec.py": "X = 1\n"},
        environment={"PYTHONPATH": "lib"},
    ),
    "own sitecustomize": Case(
        body="print(sys.custom, 'sitecustomize' in sys.modules)",
        files={"lib/sitecustomize.py": "import sys; sys.custom = 5\n"},
        environment={"PYTHONPATH": "lib"},
    ),
    # -- streams
    "stderr full": Case(body="work(60); open('last', 'w').write('60')", stderr="/dev/full", small=True),
    "stderr without a reader": Case(body="work(60); open('last', 'w').write('60')", stderr="gone"),
    "stderr closed": Case(body="work(60); open('last', 'w').write('60')", stderr="closed"),
    "stdout full": Case(body="print('x'); work(60)", stdout="/dev/full"),
    "no streams": Case(body="sys.stderr = sys.stdout = None\nwork(60); os._exit(3)"),
    "daemon": Case(
        body="log = open('log', 'w'); os.close(1); os.close(2)\nmore = open('more', 'w')\nwork(60)\n"
        "log.write('end'); more.write('end')",
    ),
    "captured stderr": Case(
        body="import contextlib, io\nwith contextlib.redirect_stderr(io.StringIO()) as e: work(60)\n"
        "print(repr(e.getvalue()))"
    ),
    "latin locale": Case(
        body="work(60); print('caf\\xe9', sys.stdout.encoding)",
        environment={"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    ),
    "warnings are errors": Case(body="work(60); print(sys.warnoptions)", environment={"PYTHONWARNINGS": "error"}),
    "pytest with warnings as errors": Case(
        words=("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--no-header", "test_it.py"),
        files={"test_it.py": WORK + "def test_it(capfd):\n    work(60)\n    assert capfd.readouterr() == ('', '')\n"},
    ),
    "disk full": Case(
        body="import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\nwork(60); print('done')"
    ),
    # -- threads and processes
    "thread per request": Case(
        body="import threading\nfor _ in range(200):\n    t = threading.Thread(target=work, args=(1,))\n"
        "    t.start(); t.join()\nprint('served')",
    ),
    "thread after main": Case(
        body="import threading, time\ndef late(): time.sleep(0.5); work(60); print('late')\n"
        "threading.Thread(target=late).start()"
    ),
    "thread pool": Case(
        body="from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as p: list(p.map(work, [5] * 40))\nprint('done')"
    ),
    "thread raises": Case(
        body="import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t'); t.start(); t.join()"
    ),
    "daemon thread": Case(
        body="import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nwork(60)"
    ),
    "threads listed": Case(
        body="import threading\nwork(30)\nprint([t.name for t in threading.enumerate()], threading.active_count())"
    ),
    "fork": Case(
        body="work(30)\npid = os.fork()\nif pid == 0: work(60); print('child', flush=True); sys.exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); work(30)",
    ),
    "spawn": Case(
        body="import torch.multiprocessing as mp\ndef child(i): work(3); print('child', i, flush=True)\n"
        "if __name__ == '__main__': work(60); mp.spawn(child, nprocs=1); print('end')"
    ),
    "subprocess": Case(
        body="import subprocess\nwork(60)\nprint(subprocess.run([sys.executable, '-c', 'import sys, os; "
        'print([k for k in os.environ if "LANEWISE" in k], "lanewise" in sys.modules)\'], capture_output=True, text=True))'
    ),
    "exec": Case(body="work(30); sys.stdout.flush(); os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])"),
    "async": Case(
        body="import asyncio\nasync def main():\n    for _ in range(60): work(1); await asyncio.sleep(0)\n"
        "asyncio.run(main()); print('done')"
    ),
    "generator": Case(body="def steps():\n    for i in range(60): work(1); yield i\nprint(sum(steps()))"),
    "moves away": Case(body="import shutil\nos.mkdir('d'); os.chdir('d'); work(60); os.rmdir('../d'); print('gone')"),
    # -- torch
    "nested profilers": Case(
        body="from torch.profiler import profile\nwith profile() as a:\n    work(3)\n    try:\n"
        "        with profile() as b: work(3)\n    except RuntimeError as e: print(e)\nprint('end')",
    ),
    "profiler in a step": Case(
        body="from torch.profiler import profile\nwork(30)\nwith profile() as p: work(3)\nwork(60)\n"
        "print(sum(e.count for e in p.key_averages() if e.key == 'aten::linear'))"
    ),
    "profiler exported at the end": Case(
        body="import atexit\nfrom torch.profiler import profile\nwork(30)\nwith profile() as p: work(3)\n"
        "atexit.register(lambda: (p.export_chrome_trace('mine.json'), print('kept')))",
    ),
    "model saved": Case(
        body="import io\nwork(30)\nb = io.BytesIO(); torch.save(net, b); b.seek(0)\n"
        "with torch.serialization.safe_globals([torch.nn.Linear]): print(type(torch.load(b, weights_only=True)))",
    ),
    "model scripted": Case(
        body="import copy\nwork(30)\nprint(torch.jit.script(net)(x).shape, torch.jit.trace(net, x)(x).shape)\n"
        "print(torch.jit.script(copy.deepcopy(net))(x).shape, net._forward_pre_hooks, net._forward_hooks)"
    ),
    "trains": Case(
        body="torch.manual_seed(0)\nm = torch.nn.Linear(8, 1); o = torch.optim.SGD(m.parameters(), 0.1)\n"
        "for _ in range(60): o.zero_grad(); l = m(x).sum(); l.backward(); o.step()\nprint(round(l.item(), 4))"
    ),
    "without torch": Case(body="print('no torch')", small=True),
}
