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
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Job", "run_all", "run_one", "warm_imports"]

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


class Job:
    """A fork that is running.

    Args:
        work: its exit code is 0 unless this raises, or exits with another one.
        log: gets what it prints.
    """

    def __init__(self, work: Callable[[], object], log: Path) -> None:
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, log)

    def ended(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def stop(self) -> None:
        """End it, and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def run_one(work: Callable[[], object], log: Path, seconds: float) -> str:
    """Run it to its end. Returns "" or why it did not end well."""
    return run_all([(work, log)], 1, seconds)[0]


def run_all(jobs: Sequence[tuple[Callable[[], object], Path]], together: int, seconds: float) -> list[str]:
    """Run jobs, some at a time, until all are done or the time is up.

    Returns:
        For each job "" or why it did not end well.
    """
    deadline = time.monotonic() + seconds
    said = ["not begun: no time was left"] * len(jobs)
    running: dict[int, Job] = {}
    waiting = list(range(len(jobs)))
    try:
        while (waiting or running) and time.monotonic() < deadline:
            while waiting and len(running) < together:
                at = waiting.pop(0)
                running[at] = Job(*jobs[at])
                said[at] = "stopped: no time was left"
            for at, job in list(running.items()):
                if (code := job.ended()) is not None:
                    del running[at]
                    said[at] = "" if code == 0 else f"exit code {code}"
            time.sleep(0.01)
    finally:
        for job in running.values():
            job.stop()
    return said


def _child(work: Callable[[], object], log: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)
        sys.stderr = open(2, "w", buffering=1, closefd=False)
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
