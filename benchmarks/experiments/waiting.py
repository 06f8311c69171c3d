"""Fresh processes that have done everything but their work: torch is imported, the device's context exists.

Both take seconds, which every measurement would pay alike; here they overlap the measurement before. A script that can
wait prints `ready` on standard error, reads one line of JSON, works, and prints its result as the last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENT = dict(os.environ)
"""Of every process; to be changed before the first one starts."""


class Waiting:
    """A process that has imported torch and waits for its order."""

    def __init__(self, script: str, log: Callable[[str], None]) -> None:
        self.script = script
        self.output: list[str] = []
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=HERE.parents[1],
            env=ENVIRONMENT,
        )
        self._ready = False
        self._results: list[str] = []
        self._readers = [Thread(target=read, daemon=True) for read in (self._follow, self._collect)]
        for reader in self._readers:
            reader.start()

    def _collect(self) -> None:
        self._results.extend(line for line in self._process.stdout if line.strip())

    def _follow(self) -> None:
        for line in self._process.stderr:
            if line.strip() == "ready":
                self._ready = True
            else:
                self.output.append(line.rstrip())

    def wait_ready(self, seconds: float = 120.0) -> bool:
        """Whether torch was imported in time."""
        end = time.monotonic() + seconds
        while not self._ready and time.monotonic() < end and self._process.poll() is None:
            time.sleep(0.01)
        return self._ready

    def give(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The result of the order, or `{"error": ...}`."""
        if not self.wait_ready():
            self.end()
            return {"error": "the process did not start", "output": self.output[-8:]}
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.close()
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return {"error": f"no result within {seconds:.0f} s", "output": self.output[-8:]}
        except OSError as error:
            self.end()
            return {"error": repr(error), "output": self.output[-8:]}
        for reader in self._readers:
            reader.join(timeout=2)
        self._log("\n".join(f"    {line}" for line in self.output))
        try:
            return json.loads(self._results[-1])
        except (ValueError, IndexError):
            return {"error": f"exit code {self._process.returncode}, no result", "output": self.output[-8:]}

    def end(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait()


class Pool:
    """Keeps a few processes of each script waiting, so that the start of one overlaps the run of another."""

    def __init__(self, ahead: int, log: Callable[[str], None] = lambda _: None) -> None:
        self._ahead = ahead
        self._log = log
        self._waiting: dict[str, list[Waiting]] = {}

    def take(self, script: str) -> Waiting:
        """A process for `script`; those after it are started at once."""
        waiting = self._waiting.setdefault(script, [])
        while len(waiting) < 1 + self._ahead:
            waiting.append(Waiting(script, self._log))
        return waiting.pop(0)

    def close(self) -> None:
        """Stop the processes that nobody took."""
        for waiting in self._waiting.values():
            while waiting:
                waiting.pop().end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
