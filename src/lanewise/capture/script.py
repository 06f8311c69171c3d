"""Runs a script, module or code as `python` itself would: same argv, path, `__main__`, traceback, exit code."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, ModuleType, TracebackType

from lanewise.errors import UsageError

__all__ = ["Program", "run"]


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: exactly one of `script` (a path), `module` (as for `python -m`) and `code` (as for `python -c`)."""

    script: str = ""
    module: str = ""
    code: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A word for file names: `train` for `path/to/train.py`, `package.tool` for a module."""
        if self.script:
            return os.path.splitext(os.path.basename(os.path.abspath(self.script)))[0] or "script"
        return self.module or "code"

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that would run it without us."""
        what = (self.script,) if self.script else ("-m", self.module) if self.module else ("-c", self.code)
        return ("python", *what, *self.arguments)


def run(program: Program, ended: Callable[[str], None]) -> int:
    """Runs the program to its end and returns its exit code.

    Args:
        program: what to run.
        ended: called with `program ended`, `exception` or `interrupt` while the program's objects are still alive.

    Raises UsageError if there is no such program; every exception of the program itself ends in its exit code, after
    the usual traceback.
    """
    try:
        main, code = _load(program)
    except SyntaxError as error:
        ended("exception")
        sys.excepthook(type(error), error, None)
        return 1
    try:
        exec(code, main.__dict__)
    except SystemExit as stop:
        ended("program ended")
        return _exit_code(stop)
    except KeyboardInterrupt as error:
        ended("interrupt")
        _print_traceback(error)
        return 130
    except BaseException as error:
        ended("exception")
        _print_traceback(error)
        return 1
    ended("program ended")
    return 0


def _load(program: Program) -> tuple[ModuleType, CodeType]:
    main = ModuleType("__main__")
    if program.module:
        name, path, code = _find_module(program.module)
        main.__spec__ = importlib.util.find_spec(name)
        main.__file__ = path
        main.__package__ = name.rpartition(".")[0]
        main.__loader__ = getattr(main.__spec__, "loader", None)
        first, argument = os.getcwd(), path
    elif program.script:
        path, code = _read_script(program.script)
        main.__file__ = path
        main.__package__ = None
        main.__dict__["__cached__"] = None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        first, argument = os.path.dirname(os.path.realpath(path)), program.script
    else:
        code = compile(program.code, "<string>", "exec", dont_inherit=True)
        first, argument = "", "-c"
    main.__dict__["__builtins__"] = builtins
    main.__annotations__ = {}
    sys.argv[:] = [argument, *program.arguments]
    if not sys.flags.safe_path:
        sys.path[0:1] = [first]
    sys.modules["__main__"] = main
    return main, code


def _read_script(path: str) -> tuple[str, CodeType]:
    # Python makes the path absolute and leaves it as it is otherwise, `./` included.
    path = os.path.join(os.getcwd(), os.path.join(path, "__main__.py") if os.path.isdir(path) else path)
    try:
        with io.open_code(path) as source:
            text = source.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return path, compile(text, path, "exec", dont_inherit=True)


def _find_module(name: str) -> tuple[str, str, CodeType]:
    if not sys.flags.safe_path:
        sys.path[0:1] = [os.getcwd()]
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise UsageError(f"no module named {name}: {error}") from error
    loader = getattr(spec, "loader", None)
    code = loader.get_code(name) if loader is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise UsageError(f"no module named {name}, or it cannot be run with -m")
    return name, spec.origin or name, code


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """The traceback that Python would print, without our own frames at its top."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)
