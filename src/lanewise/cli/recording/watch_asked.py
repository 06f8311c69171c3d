"""`LANEWISE_WATCH=run.lw python train.py`: a variable asks for `lanewise watch`, and the command stays as it is.

Two things look at the variable: `import lanewise`, and a hook that the user puts into an environment of Python's with
`lanewise watch --install-hook`. Nothing in here raises: a program that cannot be watched runs without, and one line says
why.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["OPTIONS", "VARIABLE", "hook_file", "install_hook", "read_share", "remove_hook", "start_if_asked"]

VARIABLE = "LANEWISE_WATCH"
OPTIONS = "LANEWISE_WATCH_OPTIONS"
_MARK = "LANEWISE_WATCHED_BY"
"""Which process is watched already: its children inherit this, and are left alone."""

_HOOK = "zz_lanewise_watch.pth"
# Python runs lines of a `.pth` file that begin with `import`, in every process, in some environments twice. This one looks
# at a variable: importing lanewise does the rest.
_LINE = (
    f"import os, sys; {VARIABLE!r} in os.environ and not hasattr(sys, '_lanewise_asked') and exec("
    '"sys._lanewise_asked = True\\ntry:\\n import lanewise\\n'
    "except Exception as error:\\n print('lanewise: not watched:', error, file=sys.stderr)\")\n"
)
_LAUNCHERS = ("lanewise", "torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")
"""What starts programs, and is none to watch."""

_DEFAULTS: dict[str, Any] = {
    "every": 0,
    "steps": 1,
    "budget": 0.0,
    "frames": True,
    "device": True,
    "lines": False,
    "measure": True,
    "alerts": True,
    "way": "auto",
    "step_on": "",
    "save_every": 5.0,
    "baseline": "",
    "rotate": 0.0,
    "rotate_keep": 48,
    "record_signal": "",
    "record_port": -1,
    "record_steps": 10,
    "record_keep": 10,
    "quiet": False,
}


def start_if_asked() -> bool:
    """Watch this process if the environment asks for it, and it is none that another one started. Never raises."""
    asked = os.environ.get(VARIABLE, "")
    if not asked or _leave_alone(asked):
        return False
    from lanewise.capture.say import say

    try:
        _start(asked, first=_before_the_program())
    except Exception as error:  # the program goes on
        say(f"not watched, though {VARIABLE} asks for it: {' '.join(str(error).split()) or type(error).__name__}")
        return False
    return True


def _leave_alone(asked: str) -> bool:
    words = [os.path.basename(word) for word in sys.orig_argv[:4]]
    if any(word in _LAUNCHERS for word in words):
        return True
    mark = os.environ.get(_MARK)
    # A data loader's worker has its parent's rank; with a name for each process every one is meant.
    return mark is not None and mark.partition(":")[2] == _rank() and "{pid}" not in asked


def _before_the_program() -> bool:
    """Whether nothing of the program has run yet: Python is still looking for its packages."""
    frame = sys._getframe()  # type: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_globals.get("__name__") == "site":
            return True
        frame = frame.f_back
    return False


def _rank() -> str:
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", ""))


def _start(asked: str, *, first: bool) -> None:
    from lanewise.capture.boundaries.import_hooks import ImportWatch
    from lanewise.capture.file.save import free_path, rank_suffix

    options = read_options(os.environ.get(OPTIONS, ""))
    path = Path(asked.replace("{pid}", str(os.getpid()))).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}")
    path = free_path(path.parent, path.stem + rank_suffix(os.environ), path.suffix or ".lw")
    order = {
        "out": str(path),
        "quiet": options.pop("quiet"),
        "options": {
            **options,
            "step_on": options["step_on"] or None,
            "record_port": options["record_port"] if options["record_port"] >= 0 else None,
            "source": path.stem,
        },
    }

    def mark() -> None:
        # Only a process that uses torch: a script that starts others is not what was meant.
        os.environ[_MARK] = f"{os.getpid()}:{_rank()}"

    ImportWatch("torch", mark).install()
    if first:
        import json

        from lanewise.capture.inside import begin

        begin(
            json.dumps({"module": "lanewise.cli.recording.watched", "order": order, "searches": _searches()}),
            frozenset(sys.modules),
        )
    else:
        from lanewise.cli.recording.watched import start

        start(order)


def read_options(text: str) -> dict[str, Any]:
    """`every=50 step_on=train_step device=no` as options of `watch`. ValueError for what is none."""
    options = dict(_DEFAULTS)
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or name not in options:
            raise ValueError(f"{OPTIONS} has {word!r}; it takes {', '.join(f'{key}=' for key in _DEFAULTS)}")
        options[name] = _read(name, value, type(_DEFAULTS[name]))
    return options


def _read(name: str, value: str, kind: type) -> Any:
    if kind is bool:
        if value.lower() not in ("yes", "no", "1", "0", "true", "false"):
            raise ValueError(f"{OPTIONS}: {name} is yes or no, not {value!r}")
        return value.lower() in ("yes", "1", "true")
    try:
        return read_share(value) if name == "budget" else kind(value)
    except ValueError:
        raise ValueError(f"{OPTIONS}: {name} is a number, not {value!r}") from None


def read_share(text: str) -> float:
    """`1%`, `1 %` or `0.01` as 0.01. ValueError for what is no share between 0.1 % and 50 %."""
    percent = text.strip().endswith("%")
    share = float(text.strip().rstrip("%")) / (100 if percent else 1)
    if not 0.001 <= share <= 0.5:
        raise ValueError(text)
    return share


def _searches() -> list[str]:
    """Where the program looks for modules before all other places, as far as its command line says."""
    script = next((word for word in sys.orig_argv[1:] if word.endswith((".py", ".pyc")) and os.path.isfile(word)), "")
    first = os.path.dirname(os.path.realpath(script)) if script else os.getcwd()
    added = os.environ.get("PYTHONPATH", "")
    return ([] if sys.flags.safe_path else [first]) + [path for path in added.split(os.pathsep) if path]


# -- the hook ----------------------------------------------------------------------------------------------------------


def hook_file() -> Path:
    """Where the hook is, or would be: among the packages of this Python."""
    return Path(sysconfig.get_paths()["purelib"]) / _HOOK


def install_hook() -> str:
    """Put it there; what it does, in a sentence. OSError where that is not allowed."""
    hook_file().write_text(_LINE, encoding="utf-8")
    return (
        f"{hook_file()}: from now on every program of {sys.executable} is watched if {VARIABLE} names a file, and nothing"
        " else changes; --remove-hook takes it out"
    )


def remove_hook() -> str:
    """Take it out; what was done, in a sentence. OSError where that is not allowed."""
    if not hook_file().exists():
        return f"there is no hook at {hook_file()}"
    hook_file().unlink()
    return f"removed {hook_file()}"
