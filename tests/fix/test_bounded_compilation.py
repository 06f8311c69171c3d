"""What a compiler that is stopped leaves behind: nothing that runs beside what is timed next."""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix import bounded_compilation as module
from lanewise.fix.bounded_compilation import compiling, ended_within
from lanewise.fix.time_budget import Budget, OutOfTime

CHOOSING = "torch._inductor.select_algorithm"


def test_what_was_handed_to_threads_is_given_up() -> None:
    choosing: Any = module.torch_part(CHOOSING)
    theirs = choosing.ThreadPoolExecutor
    given: list[Future[None]] = []
    began = threading.Event()

    def work() -> None:
        began.set()
        time.sleep(0.2)

    def hand_out() -> None:
        given.extend(choosing.ThreadPoolExecutor(max_workers=1).submit(work) for _ in range(2))
        pool = choosing.ThreadPoolExecutor(max_workers=1)
        given.extend(pool.submit(work) for _ in range(30))
        assert began.wait(10)
        raise OutOfTime

    with pytest.raises(OutOfTime), compiling():
        hand_out()
    assert sum(future.cancelled() for future in given) >= 28
    assert choosing.ThreadPoolExecutor is theirs


def test_what_was_handed_to_threads_is_done_where_nothing_is_stopped() -> None:
    choosing: Any = module.torch_part(CHOOSING)
    with compiling():
        pool = choosing.ThreadPoolExecutor(max_workers=1)
        given = [pool.submit(time.sleep, 0.01) for _ in range(5)]
    pool.shutdown()
    assert not any(future.cancelled() for future in given)


def test_workers_of_a_compiler_that_is_stopped_are_ended(tmp_path: Path) -> None:
    """With the compiler's own pool of processes, as it compiles kernels by default; the next pool works."""
    workers: Any = module.torch_part("torch._inductor.async_compile")
    mark = tmp_path / "began"
    pool = workers.AsyncCompile.process_pool()
    waiting = pool.submit(_mark_and_sleep, str(mark))

    def interrupted() -> None:
        until = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), compiling():
        interrupted()
    number = int(mark.read_text())
    assert waiting.done()
    assert pool.process.poll() is not None
    until = time.monotonic() + 15
    while _lives(number) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _lives(number), "a worker goes on compiling"
    again = workers.AsyncCompile.process_pool()
    assert again is not pool
    assert again.submit(os.getpid).result(timeout=60) != os.getpid()
    workers.shutdown_compile_workers()


def _mark_and_sleep(mark: str) -> None:
    part = Path(mark + ".part")
    part.write_text(str(os.getpid()))
    part.rename(mark)
    time.sleep(120)


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_tables_of_choices_are_not_printed_and_come_back() -> None:
    choosing: Any = module.torch_part(CHOOSING)
    config: Any = module.torch_part("torch._inductor.config")
    log = logging.getLogger(CHOOSING)
    before = (choosing.PRINT_AUTOTUNE, config.max_autotune_report_choices_stats, log.level)
    with compiling():
        assert not choosing.PRINT_AUTOTUNE
        assert not config.max_autotune_report_choices_stats
        assert not log.isEnabledFor(logging.ERROR)
    assert (choosing.PRINT_AUTOTUNE, config.max_autotune_report_choices_stats, log.level) == before


def test_it_is_told_whether_something_is_still_being_compiled() -> None:
    choosing: Any = module.torch_part(CHOOSING)
    go_on = threading.Event()

    def stopped() -> None:
        choosing.ThreadPoolExecutor(max_workers=1).submit(go_on.wait)
        raise OutOfTime

    assert ended_within(5)
    with pytest.raises(OutOfTime), compiling():
        stopped()
    try:
        assert not ended_within(0.1)
    finally:
        go_on.set()
    assert ended_within(10)


def test_the_threads_that_compile_for_the_host_are_given_up_too() -> None:
    """They wait for a C++ compiler: hundreds of kernels of a large model may be in line."""
    workers: Any = module.torch_part("torch._inductor.async_compile")
    pool = workers.AsyncCompile.pool()
    given: list[Future[None]] = []

    def stopped() -> None:
        given.extend(pool.submit(time.sleep, 0.1) for _ in range(100))
        raise OutOfTime

    with pytest.raises(OutOfTime), compiling():
        stopped()
    assert sum(future.cancelled() for future in given) > 50
    assert ended_within(10)
    assert workers.AsyncCompile.pool().submit(os.getpid).result(timeout=10) == os.getpid()


def test_a_compilation_that_runs_out_of_time_leaves_the_next_one_right() -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)], nn.ReLU()).eval().requires_grad_(False)
    x = torch.randn(4, 16)
    compiled: Any = torch.compile(model)

    def run() -> None:
        compiled(x)
        time.sleep(60)

    with pytest.raises(OutOfTime), Budget(60).at_most(0.3), compiling():
        run()
    torch._dynamo.reset()
    again: Any = torch.compile(model)
    with compiling():
        assert torch.allclose(again(x), model(x), atol=1e-5)
