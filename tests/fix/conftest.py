"""Set-up shared by the tests of fixing: seeds, threads, and a clock that shows work instead of time."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def _seeded() -> None:  # pyright: ignore[reportUnusedFunction]
    if find_spec("torch") is not None:
        import torch

        torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _what_is_imported_is_no_garbage() -> None:  # pyright: ignore[reportUnusedFunction]
    """The gate collects garbage for each candidate, and need not look through torch's compiler."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """On a busy machine, operators that wait for a second thread show nothing but that."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """One thread is a candidate only where there are more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


class WorkClock:
    """Stands in for `time` where arms are timed: programs say how much they do, and nothing else takes any time.

    What is proven by it is proven on any machine, busy or not.
    """

    def __init__(self) -> None:
        self._now = 0
        self._noise = random.Random(0)

    def spend(self, us: float) -> None:
        """Work of so many us, give or take 2 %."""
        self._now += int(us * 1e3 * self._noise.uniform(0.98, 1.02))

    def perf_counter_ns(self) -> int:
        """Work so far, ns. Reading it is work too, or what does none would be called without end."""
        self._now += 500_000
        return self._now

    def perf_counter(self) -> float:
        """Work so far, seconds."""
        return self.perf_counter_ns() / 1e9

    def monotonic(self) -> float:
        """The real one: budgets are those of the user."""
        return time.monotonic()


@pytest.fixture
def work_clock(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> WorkClock:
    """Arms are timed by the work that they do; on a busy machine a second thread would be waited for without end."""
    from lanewise.fix.gate.speed import repeats, timing

    clock = WorkClock()
    for module in (repeats, timing):
        monkeypatch.setattr(module, "time", clock)
    return clock
