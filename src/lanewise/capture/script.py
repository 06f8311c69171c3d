"""A program, and the process that becomes it: Python itself runs it, with our part begun before its first line.

So argv, path, `__main__`, tracebacks, signals, exit codes, packages in zip files and everything else that `python` does
are what they are without us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Program", "become"]

_FIRST = str(Path(__file__).resolve().parent / "first")
"""Folder of a `sitecustomize` of ours."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: exactly one of `script` (a path, `-` for standard input), `module` (as for `python -m`) and `code`
    (as for `python -c`)."""

    script: str = ""
    module: str = ""
    code: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A word for file names: `train` for `path/to/train.py`, `package.tool` for a module."""
        if self.script == "-":
            return "stdin"
        if self.script:
            return os.path.splitext(os.path.basename(os.path.abspath(self.script)))[0] or "script"
        return self.module or "code"

    @property
    def words(self) -> tuple[str, ...]:
        """The command line after `python` that runs it without us."""
        what = (self.script,) if self.script else ("-m", self.module) if self.module else ("-c", self.code)
        return (*what, *self.arguments)

    @property
    def searches(self) -> list[str]:
        """Where it looks for modules before all other places."""
        first = os.getcwd()
        if self.script and self.script != "-":
            script = os.path.realpath(self.script)
            # Folders and zip files with a `__main__` are searched themselves.
            first = os.path.dirname(script) if script.endswith((".py", ".pyc")) else script
        added = os.environ.get("PYTHONPATH", "")
        return ([] if sys.flags.safe_path else [first]) + [path for path in added.split(os.pathsep) if path]


def become(program: Program, module: str, order: dict[str, Any]) -> NoReturn:
    """This process becomes the program's. Does not return.

    Args:
        program: what to run.
        module: whose `start` is called in the new process, with `order`, before the program's first line.
    """
    asked = {"module": module, "order": order, "searches": program.searches}
    environment = dict(os.environ)
    environment["LANEWISE_ORDER"] = json.dumps(asked)
    # What the command line says comes before what the environment says.
    environment.pop("LANEWISE_WATCH", None)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = _FIRST if before is None else f"{_FIRST}{os.pathsep}{before}"
    os.execve(sys.executable, [sys.executable, *_flags(), *program.words], environment)


def _flags() -> list[str]:
    """Options of this interpreter that the program's is to have, too."""
    # Public only in effect: it is what multiprocessing starts its children with.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # These keep out what `become` puts into the environment.
    return [flag for flag in flags if flag not in ("-I", "-E")]
