"""A program must not be able to tell whether it runs under `lanewise run`. No torch needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lanewise.capture.script import Program, run
from lanewise.errors import UsageError

RUNNER = (
    "import sys; from lanewise.capture.script import Program, run\n"
    "words = sys.argv[1:]\n"
    "program = Program(module=words[1], arguments=tuple(words[2:])) if words[0] == '-m' else "
    "Program(code=words[1], arguments=tuple(words[2:])) if words[0] == '-c' else "
    "Program(script=words[0], arguments=tuple(words[1:]))\n"
    "sys.exit(run(program, lambda reason: None))\n"
)

LOOKS_AROUND = """
import sys, os
import helper
print(sys.argv, sys.path[0], __name__, __file__, __spec__ and __spec__.name, __package__, type(__loader__).__name__)
print(__builtins__.__name__, helper.VALUE, sys.modules["__main__"].__dict__ is globals(), __doc__)
import pickle
class Thing: pass
print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("VALUE = 3\n")
    (tmp_path / "looks.py").write_text(LOOKS_AROUND)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys; print(sys.argv[1:], __package__, __name__); sys.exit(4)\n")
    (package / "tool.py").write_text(
        "from package import __name__ as n; import sys; print(n, sys.argv[1:], __spec__.name)\n"
    )
    return tmp_path


def both(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The program under python, and under the runner."""
    source = str(Path(__file__).parents[2] / "src")
    environment = {"PYTHONPATH": source, "PATH": "/usr/bin:/bin"}
    runner = folder.parent / "runner.py"
    runner.write_text(RUNNER)
    more = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}
    plain = subprocess.run([sys.executable, *words], **more)  # type: ignore[call-overload]
    ours = subprocess.run([sys.executable, str(runner), *words], **more)  # type: ignore[call-overload]
    return plain, ours


@pytest.mark.parametrize(
    "words",
    [
        ["looks.py", "a", "--flag", "-x"],
        ["./looks.py"],
        ["-m", "package", "--x", "1"],
        ["-m", "package.tool", "y"],
        ["-c", "import sys, helper; print(sys.argv, __name__)", "z"],
    ],
)
def test_it_looks_the_same_from_inside(folder: Path, words: list[str]) -> None:
    plain, ours = both(folder, *words)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize(
    "body",
    [
        "import sys; sys.exit(7)",
        "import sys; sys.exit()",
        "import sys; sys.exit('a last word')",
        "import sys; sys.exit(300)",
        "raise SystemExit(True)",
        "def f(): raise ValueError('boom')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('x')",
        "class E(BaseException): pass\nraise E",
        "import sys\nsys.excepthook = lambda *a: print('own hook', a[0].__name__)\n1 / 0",
        "import atexit; atexit.register(print, 'on the way out')\nprint('body')",
        "import os; os._exit(9)",
        "def broken(:\n  pass",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
        "import multiprocessing as m\ndef f(x): return x * x\n"
        "if __name__ == '__main__':\n    print(m.get_context('spawn').Pool(1).map(f, [1, 2, 3]))",
        "import os\npid = os.fork()\nif pid == 0:\n    print('child', flush=True)\n    os._exit(3)\n"
        "print('parent', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    ],
)
def test_ends_come_out_the_same(folder: Path, body: str) -> None:
    (folder / "ends.py").write_text(textwrap.dedent(body) + "\n")
    plain, ours = both(folder, "ends.py")
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr == plain.stderr or "SyntaxError" in plain.stderr


def test_a_syntax_error_is_the_programs_own(folder: Path) -> None:
    (folder / "ends.py").write_text("def broken(:\n  pass\n")
    plain, ours = both(folder, "ends.py")
    assert plain.returncode == ours.returncode == 1
    assert plain.stderr.splitlines()[-1] == ours.stderr.splitlines()[-1]


def test_control_c_gives_130(folder: Path) -> None:
    (folder / "ends.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)\n"
    )
    _, ours = both(folder, "ends.py")
    assert ours.returncode == 130
    assert ours.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_a_program_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        run(Program(script="no/such/file.py"), lambda _: None)
    with pytest.raises(UsageError, match="no module"):
        run(Program(module="no_such_module_anywhere"), lambda _: None)


def test_names_for_files() -> None:
    assert Program(script="path/to/train.py").name == "train"
    assert Program(script=".").name
    assert Program(module="package.tool").name == "package.tool"
    assert Program(code="pass").name == "code"
    assert Program(script="a.py", arguments=("-x",)).command == ("python", "a.py", "-x")
