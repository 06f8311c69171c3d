"""What somebody types first after `lanewise run`, and what to type instead."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from importlib.metadata import entry_points
from importlib.util import find_spec

__all__ = ["what_to_type"]

_PYTHON = re.compile(r"(?:python|pypy|ipython|py)w?[\d.]*(?:\.exe)?")
_SHELL = re.compile(r"(?:ba|z|da|k)?sh")
# How a launcher of ranks is told that what it launches is a module: each rank is recorded, and not the launcher.
_LAUNCHERS = {("accelerate", "launch"): "-m", ("deepspeed",): "--module"}
# Tools whose `run` starts a program in a project's environment.
_RUNNERS = {"hatch", "pdm", "pipenv", "pixi", "poetry", "rye", "uv"}
_TAKE_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def what_to_type(words: list[str], verb: str) -> str:
    """One line about a command line that names no program; "" where it names one."""
    first, rest = words[0], words[1:]
    name = os.path.basename(first)
    if _PYTHON.fullmatch(name):
        if not rest:
            return f"which program? lanewise {verb} SCRIPT [ARGS], or -m MODULE, or -c CODE"
        return _say(f"{name} is not needed", _python_less(first, rest, verb))
    if os.path.isfile(first):
        return _no_python(first, verb)
    if os.path.exists(first) or name == "torchrun":
        return ""
    for launcher, option in _LAUNCHERS.items():
        if (name, *rest[: len(launcher) - 1]) == launcher:
            return _of_ranks(words, len(launcher), option, verb)
    at = next((i for i, word in enumerate(words) if _PYTHON.fullmatch(os.path.basename(word))), None)
    if at is not None:
        ours = _python_less(words[at], words[at + 1 :], verb)
        return _say(f"{first} starts a program and is none", [*words[:at], *ours])
    if os.path.isfile(f"{first}.py"):
        return _say(f"no such script: {first}", ["lanewise", verb, f"{first}.py", *rest])
    # A runner that is installed beside us is a module, too, and still starts another program.
    runs = name in _RUNNERS and rest[:1] == ["run"]
    if not runs and (module := _module(first)):
        return _say(f"{first} is a module and no script", ["lanewise", verb, "-m", module, *rest])
    if _SHELL.fullmatch(name):
        return _in_the_script(rest[0] if rest else first, verb)
    if shutil.which(first) is not None and any(word.endswith(".py") for word in rest):
        at = next(i for i, word in enumerate(words) if word.endswith(".py"))
        return _say(f"{first} starts a program and is none", [*words[:at], "lanewise", verb, *words[at:]])
    if shutil.which(first) is not None:
        return f"{first} is no Python program: lanewise {verb} SCRIPT [ARGS], or -m MODULE, or -c CODE"
    return f"no such script: {first}"


def _python_less(python: str, rest: list[str], verb: str) -> list[str]:
    """The command line with ours in place of Python's, or under it where it has options."""
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] not in ("-m", "-c"):
        at += 2 if rest[at] in _TAKE_A_VALUE else 1
    return [*([python, *rest[:at], "-m", "lanewise"] if at else ["lanewise"]), verb, *rest[at:]]


def _of_ranks(words: list[str], at: int, option: str, verb: str) -> str:
    begins = next((i for i, w in enumerate(words) if i >= at and (w.endswith(".py") or w in ("-m", "--module"))), None)
    name = " ".join(words[:at])
    if begins is None:
        return f"every rank is recorded by itself: {name} ... {option} lanewise {verb} SCRIPT [ARGS]"
    program = ["-m", *words[begins + 1 :]] if words[begins] == "--module" else words[begins:]
    return _say("every rank is recorded by itself", [*words[:begins], option, "lanewise", verb, *program])


def _no_python(path: str, verb: str) -> str:
    """About a file that is none: shell scripts, notebooks and binaries, by what they begin with."""
    try:
        with open(path, "rb") as file:
            head = file.read(200)
    except OSError:
        return ""
    line = head.split(b"\n")[0]
    if path.endswith((".sh", ".bash")) or (line.startswith(b"#!") and b"sh" in line and b"py" not in line):
        return _in_the_script(path, verb)
    if path.endswith(".ipynb"):
        script = f"{os.path.splitext(path)[0]}.py"
        return f"{path} is a notebook: jupyter nbconvert --to script {path}, then lanewise {verb} {script}"
    if head.startswith((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe")):
        return f"{path} is no Python program: lanewise {verb} SCRIPT [ARGS], or -m MODULE, or -c CODE"
    return ""


def _in_the_script(path: str, verb: str) -> str:
    return f"{path} is a shell script: put lanewise {verb} in it where it says python, and start it as before"


def _module(name: str) -> str:
    """The module behind a console command, or of that name, that `-m` can run; "" for none."""
    for point in entry_points(group="console_scripts", name=name):
        top = point.module.partition(".")[0]
        for module in (top, point.module):
            if _runs(module):
                return module
    return name if re.fullmatch(r"\w+(\.\w+)*", name) and _runs(name) else ""


def _runs(module: str) -> bool:
    try:
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{module}.__main__")
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None and spec.origin.endswith(".py")


def _say(why: str, words: list[str]) -> str:
    return f"{why}: {shlex.join(words)}"
