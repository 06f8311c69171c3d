"""Processes of this machine that each work through traces, one at a time: a name on standard input, an answer on standard
output, with its length before it.

A program of its own, and no fork or copy of the caller: whoever calls needs no guard around its main module. The task is
named as text (`module:function`), so that what runs in them may stand in any layer above this one.
"""

from __future__ import annotations

import importlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Processes", "Task", "in_order", "run_task", "task_of"]

Task = Callable[[str, bool], bytes]
"""What is done with the name of a trace, and whether copies are kept: an answer as bytes."""

_LENGTH = 8
_ROOT = Path(__file__).parents[4]


def task_of(name: str) -> Task:
    """The function behind `module:function`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def run_task(task: str, name: str, cache: bool) -> bytes:
    """Do it with one trace: what is sent to a cluster."""
    return task_of(task)(name, cache)


_AHEAD = 4


def in_order(names: Sequence[str], places: int, submit: Callable[[str], Any]) -> Iterator[Any]:
    """What was submitted for each name, in their order.

    Four are under way for each place of a cluster, so that none waits and no answers pile up.
    """
    submitted: list[Any] = []
    for row in range(len(names)):
        while len(submitted) < min(len(names), row + _AHEAD * places):
            submitted.append(submit(names[len(submitted)]))
        yield submitted[row]
        submitted[row] = None  # lets go of the answer


class Processes:
    """So many processes of this machine."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def each(self, task: str, names: Sequence[str], *, cache: bool) -> Iterator[bytes | None]:
        """The answers in the order of the names; None where the process ended over one: the next has a new process."""
        count = max(1, min(self._workers, len(names)))
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        workers = [_Worker(task, cache) for _ in range(count)]
        for worker in workers:
            idle.put(worker)

        def answer(name: str) -> bytes | None:
            worker = idle.get()
            try:
                return worker.answer(name)
            finally:
                idle.put(worker)

        threads = ThreadPoolExecutor(count)
        try:
            yield from threads.map(answer, names)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.end()
            threads.shutdown()


class _Worker:
    """One process, started when there is something to do, and again after it ended."""

    def __init__(self, task: str, cache: bool) -> None:
        self._words = [sys.executable, "-m", __name__, task, "cache" if cache else "no-cache"]
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def answer(self, name: str) -> bytes | None:
        """What the process says of one trace; None if it ended."""
        if self._over:
            return None
        if self._process is None:
            path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C is for whoever called, who then ends it.
                process_group=0,
                env={**os.environ, "PYTHONPATH": path},
            )
        answer = _asked(self._process, name)
        if answer is None:
            self._stop()
        return answer

    def end(self) -> None:
        """No further answers."""
        self._over = True
        self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was still to be written to it
                    pass


def _asked(process: subprocess.Popen[bytes], name: str) -> bytes | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(name) + b"\n")
        process.stdin.flush()
        length = process.stdout.read(_LENGTH)
        data = process.stdout.read(int.from_bytes(length, "big"))
    except (OSError, ValueError):  # it ended, or was ended
        return None
    return data if len(length) == _LENGTH and data else None


def main() -> None:
    """Answer until the names end."""
    task, cache = task_of(sys.argv[1]), sys.argv[2] == "cache"
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no answer
    for line in sys.stdin.buffer:
        data = task(msgspec.json.decode(line, type=str), cache)
        answers.write(len(data).to_bytes(_LENGTH, "big") + data)
        answers.flush()


if __name__ == "__main__":
    main()
