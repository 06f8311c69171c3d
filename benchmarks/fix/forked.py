"""Work in processes of its own that need not import torch again: forks of a parent that has imported everything.

Importing takes longer than many a measurement. The parent never touches the device (it could not be used in a fork), so a
fork is as fresh as a new process: no context, no allocator, no profiler before its own.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.fresh import Fork

__all__ = ["run_all", "run_each", "run_one", "warm_imports"]

_LIBRARIES = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "triton", "torch.profiler", "numpy", "polars")


def warm_imports(others: Sequence[str] = ()) -> None:
    """Import what the work will import; a library that is not installed is left out.

    Raises RuntimeError if one of them has touched the device, which a fork could not use then.
    """
    # Asked through NVML, the number of devices does not initialize the driver.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # Forks have sessions of their own: whoever ends this process means them, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in (*_LIBRARIES, *others):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        raise RuntimeError("an import has initialized the device: forks of this process cannot use it")


def run_one(work: Callable[[], object], log: Path, seconds: float, *, at_exit: bool = True) -> str:
    """Run it to its end. Returns "" or why it did not end well.

    Args:
        work: does not end well if it raises, or exits with a code that is not 0. log: gets what it prints.
        at_exit: whether what it registered for the end of a process is run.
    """
    return run_all([(work, log)], 1, seconds, at_exit=at_exit)[0]


def run_all(
    jobs: Sequence[tuple[Callable[[], object], Path]], together: int, seconds: float, *, at_exit: bool = True
) -> list[str]:
    """Run jobs, some at a time, until all are done or the time is up.

    Returns:
        For each job "" or why it did not end well.
    """
    deadline = time.monotonic() + seconds
    said = ["not begun: no time was left"] * len(jobs)
    running: dict[int, Fork] = {}
    waiting = list(range(len(jobs)))
    try:
        while (waiting or running) and time.monotonic() < deadline:
            while waiting and len(running) < together:
                at = waiting.pop(0)
                work, log = jobs[at]
                running[at] = Fork(partial(_whole, work, at_exit), log)
                said[at] = "stopped: no time was left"
            for at, fork in list(running.items()):
                if (answer := fork.answer()) is not None:
                    del running[at]
                    said[at] = answer.get("error", "")
            time.sleep(0.01)
    finally:
        for fork in running.values():
            fork.kill()
        for fork in running.values():
            fork.stop()
    return said


def run_each(
    jobs: Sequence[tuple[Callable[[int], object], Path]], places: int, seconds: float, until: float
) -> Iterator[tuple[int, str]]:
    """Run jobs, one in each place at a time; each is given its place.

    Args:
        seconds: after which a job is stopped. until: time of the monotonic clock from which on none is begun.

    Yields:
        Of each job that was begun, when it has ended, its number, and "" or why it did not end well.
    """
    running: dict[int, tuple[Fork, int, float]] = {}
    waiting, free = list(range(len(jobs))), list(range(places))
    try:
        while running or (waiting and time.monotonic() < until):
            while free and waiting and time.monotonic() < until:
                at, place = waiting.pop(0), free.pop(0)
                work, log = jobs[at]
                running[at] = Fork(partial(_whole, partial(work, place), True), log), place, time.monotonic() + seconds
            for at, (fork, place, end) in list(running.items()):
                answer = fork.answer()
                if answer is None and time.monotonic() > end:
                    fork.stop()
                    answer = {"error": f"stopped after {seconds:.0f} s"}
                if answer is not None:
                    del running[at]
                    free.append(place)
                    yield at, answer.get("error", "")
            time.sleep(0.01)
    finally:
        for fork, _, _ in running.values():
            fork.stop()


def _whole(work: Callable[[], object], at_exit: bool) -> dict[str, str]:
    """Run it as a program: with its exit code, and what it leaves for the end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code: object = 0
    try:
        work()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        if at_exit:
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()
    return {"error": f"exit code {code}"} if code else {}
