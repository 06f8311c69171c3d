"""What `lanewise run --scopes` does in the program's process: Proton times the scopes of a Triton kernel, and at the end a
file and what it says."""

from __future__ import annotations

import atexit
import contextlib
import os
from pathlib import Path
from typing import Any

from lanewise.capture.file.save import free_path, rank_suffix
from lanewise.capture.say import say
from lanewise.cli.recording.explain_kernels import explain_kernels, search_path

__all__ = ["start"]

MOST_LAUNCHES = 2
"""Launches of the kernel that are timed inside: Proton keeps what each warp of each block did."""
_ENDING, _WRITTEN = ".scopes.json", ".chrome_trace"


def start(order: dict[str, Any]) -> None:
    """Begins in the program's process, before its first line; `order` is what `lanewise run` was told."""
    try:
        # Triton is the program's: it has one, or there are no kernels to time.
        import triton
        import triton.profiler as proton
        import triton.profiler.language as scopes
    except ImportError as error:
        say(f"kernels are not timed inside: {error}; Proton comes with `pip install triton`")
        return
    folder = Path(order["out"]).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = free_path(folder, order["name"] + rank_suffix(os.environ), _ENDING)
        written = path.with_name(path.name.removesuffix(_ENDING) + _WRITTEN)
        scopes.enable_semantic("triton")
        run = _Run(proton, order["kernel"], written, path, order["explain"])
        # Before Proton's own, so that it comes after it: the chain is gone through backwards.
        triton.knobs.runtime.launch_exit_hook.add(run.launched)
        name = str(written).removesuffix(_WRITTEN)
        run.session = proton.start(name, data="trace", backend="instrumentation")
    except (OSError, RuntimeError, AttributeError, ValueError) as error:
        say(f"kernels are not timed inside: {error}")
        return
    atexit.register(run.end)


class _Run:
    def __init__(self, proton: Any, kernel: str, written: Path, path: Path, explain: bool) -> None:
        self.session: int | None = None
        self._proton, self._kernel, self._written, self._path, self._explain = proton, kernel, written, path, explain
        self._launches, self._over, self._process = 0, False, os.getpid()
        self._search = search_path()

    def launched(self, metadata: Any) -> None:
        """After some launches of the kernel it is over: from then on kernels are compiled and run as they are without."""
        self._launches += metadata.data.get("name") == self._kernel
        if self._launches == MOST_LAUNCHES and not self._over:
            self._over = True
            self._proton.deactivate(self.session)

    def end(self) -> None:
        """Ends the timing; never raises."""
        with contextlib.suppress(Exception, KeyboardInterrupt):
            if os.getpid() == self._process:
                self._end()

    def _end(self) -> None:
        self._proton.finalize(self.session)
        if not self._launches or not self._written.is_file():
            why = "has no `pl.scope` in it" if self._launches else "was not launched"
            say(f"nothing was timed inside of kernels: {self._kernel} {why}")
            return
        self._written.replace(self._path)
        explain_kernels(self._path, self._search, explain=self._explain)
