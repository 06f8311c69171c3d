"""Compiling in a limited time: the compiler keeps its tables to itself, and nothing of it goes on once it was stopped.

It hands kernels to threads and to worker processes, hundreds of them where it has several to choose from. What had been
handed out when it is stopped would be compiled all the same: beside whatever is timed next, and before the program ends.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from subprocess import Popen
from typing import Any
from unittest.mock import patch

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.time_budget import uninterrupted

__all__ = ["compiling", "ended_within", "start_workers", "wait_for_workers"]

_CHOOSING = "torch._inductor.select_algorithm"
_WORKERS = "torch._inductor.async_compile"

_STATISTICS = "max_autotune_report_choices_stats"

_ASKED_S, _KILLED_S = 0.2, 5.0

_ending: list[threading.Thread] = []
"""Each waits for the threads of a compiler that was stopped: they end with the kernel at which they are."""


@contextmanager
def compiling() -> Generator[None]:
    """While a compiler runs. If it is stopped, by whatever, so is all that it has begun elsewhere: see `ended_within`."""
    try:
        choosing = torch_part(_CHOOSING)
    except ImportError:  # another compiler, or none: the call says so
        yield
        return
    pools: list[ThreadPoolExecutor] = []

    class Noted(ThreadPoolExecutor):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            pools.append(self)

    with _silent(choosing), patch.object(choosing, "ThreadPoolExecutor", Noted, create=True):
        try:
            yield
        except BaseException:
            with uninterrupted():
                _give_up(pools)
            raise


def start_workers() -> None:
    """Have the compiler start the processes in which it compiles kernels: a first compilation that comes before they are
    there does everything on one core."""
    with suppress(ImportError):
        torch_part(_WORKERS)  # it starts them when it is imported; elsewhere than with Triton it needs none


def wait_for_workers(seconds: float) -> None:
    """Until those that are being started are there, so that they do not start beside something that is timed."""
    pool: Any = getattr(sys.modules.get(_WORKERS), "AsyncCompile", None)
    wait = getattr(pool, "wait_pool_ready", None)
    if wait is not None and getattr(sys.modules[_WORKERS], "_pool_set", ()):
        with suppress(Exception):  # they are late, or do not start: then kernels are compiled here
            wait(timeout=seconds)


def ended_within(seconds: float) -> bool:
    """Wait, for so long at most, until nothing is compiled any more of what was stopped. Returns whether that is so."""
    until = time.monotonic() + seconds
    for thread in _ending:
        thread.join(max(0.0, until - time.monotonic()))
    _ending[:] = [thread for thread in _ending if thread.is_alive()]
    return not _ending


@contextmanager
def _silent(choosing: Any) -> Generator[None]:
    """No tables of how fast every kernel was that could be chosen, and no stack for each that did not fit the device."""
    config = torch_part("torch._inductor.config")
    log = logging.getLogger(_CHOOSING)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(choosing, "PRINT_AUTOTUNE", False, create=True))
            if hasattr(config, _STATISTICS):
                stack.enter_context(config.patch({_STATISTICS: False}))
            yield
    finally:
        log.setLevel(level)


def _give_up(pools: list[ThreadPoolExecutor]) -> None:
    """Take back what waits in threads, end the worker processes, and forget what was to come of it."""
    workers: Any = sys.modules.get(_WORKERS)
    threads: Any = getattr(getattr(workers, "AsyncCompile", None), "pool", None)
    if hasattr(threads, "cache_clear") and threads.cache_info().currsize:
        pools = [*pools, threads()]
        threads.cache_clear()
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    _ending.append(_started(lambda: [pool.shutdown() for pool in pools]))
    if workers is not None:
        _end_workers(workers)
        if hasattr(workers, "CompiledTritonKernels"):
            workers.CompiledTritonKernels.cache_clear()


def _end_workers(workers: Any) -> None:
    """End the compiler's worker processes; it starts others when it needs them."""
    pools = [pool for pool in getattr(workers, "_pool_set", ()) if isinstance(getattr(pool, "process", None), Popen)]
    if not pools:
        return
    # Asked alone, some versions finish first what they have been given.
    asked = _started(workers.shutdown_compile_workers)
    asked.join(_ASKED_S)
    for pool in pools:
        pool.process.kill()
    asked.join(_KILLED_S)


def _started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
