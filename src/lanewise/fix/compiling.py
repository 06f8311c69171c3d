"""Compiling in a limited time: the compiler keeps its tables to itself, and nothing of it goes on once it was stopped.

It hands kernels to threads and to worker processes, hundreds of them where it has several to choose from. What had been
handed out when it is stopped would be compiled all the same: beside whatever is timed next, and before the program ends.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from subprocess import Popen
from typing import Any
from unittest.mock import patch

from lanewise.fix.budget import uninterrupted
from lanewise.record.torched import torch_part

__all__ = ["compiling", "quiet_within"]

_CHOOSING = "torch._inductor.select_algorithm"
_WORKERS = "torch._inductor.async_compile"

_STATISTICS = "max_autotune_report_choices_stats"

_ASKED_S, _JOIN_S = 0.2, 5.0
_LOOK_S, _BUSY = 0.05, 0.25
"""How long other threads are watched at a time, and the share of a core below which they are taken for idle."""


@contextmanager
def compiling() -> Generator[None]:
    """While a compiler runs. If it is stopped, by whatever, so is all that it has begun elsewhere in threads or processes.

    A thread ends the kernel at which it is: see `quiet_within`.
    """
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
                for pool in pools:
                    pool.shutdown(wait=False, cancel_futures=True)
                _end_workers()
            raise


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


def _end_workers() -> None:
    """End the compiler's worker processes; it starts others when it needs them."""
    workers: Any = sys.modules.get(_WORKERS)
    pools = [pool for pool in getattr(workers, "_pool_set", ()) if isinstance(getattr(pool, "process", None), Popen)]
    if not pools:
        return
    # Asked alone, some versions finish first what they have been given.
    ending = threading.Thread(target=workers.shutdown_compile_workers, daemon=True)
    ending.start()
    ending.join(_ASKED_S)
    for pool in pools:
        pool.process.kill()
    ending.join(_JOIN_S)


def quiet_within(seconds: float) -> bool:
    """Wait until the other threads of this process are idle, for so long at most. Returns whether they are."""
    until = time.monotonic() + seconds
    while True:
        began, used = time.monotonic(), time.process_time()
        time.sleep(_LOOK_S)
        if time.process_time() - used < _BUSY * (time.monotonic() - began):
            return True
        if time.monotonic() > until:
            return False
