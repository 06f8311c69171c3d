"""At the end of a program whose kernels were looked into: what the file says, or how to ask it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

from lanewise.capture.say import say
from lanewise.search import installed_first

__all__ = ["explain_kernels", "search_path"]

_MAIN = """
import sys; sys.path[:] = {search!r}
from lanewise.cli.main import main
main()
"""


def search_path() -> list[str]:
    """Where modules are found before the program changes that."""
    return [str(Path(__file__).resolve().parents[3]), *installed_first()]


def explain_kernels(path: Path, search: list[str], *, explain: bool) -> None:
    """Has `lanewise kernel` explain a file in a process of its own; the first rank does, and only if `explain`."""
    shown = os.path.relpath(path)
    if not explain or os.environ.get("RANK", "0") != "0":
        say(f"next: lanewise kernel {shlex.quote(shown)}")
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    command = [sys.executable, "-c", _MAIN.format(search=search), "kernel", shown]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANEWISE_")}
    subprocess.run(command, env=environment, stdout=sys.__stderr__, check=False)
