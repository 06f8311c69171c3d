"""Device time of each kernel in a few steps, as told by `watch` and by torch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

import lanewise

__all__ = ["SOURCES", "Source"]

Step = Callable[[], None]


class Source(Protocol):
    """One profiler, kept for several windows."""

    def window(self, step: Step, count: int, warm_s: float) -> dict[str, Any]:
        """`{"kernels": {name: [how often, ns]}}` of `count` steps, after steps without it for a while.

        A card under load is hotter and slower than one at rest: every window begins alike.
        """
        ...


def _warm(step: Step, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step()


class _Watch:
    def __init__(self) -> None:
        self._watcher = lanewise.watch(measure=False, way="native")
        self._watcher.start()
        self._watcher.step()
        self._collector: Any = self._watcher._collector
        self._collector.off()
        self._before = self._totals()[0]

    def window(self, step: Step, count: int, warm_s: float) -> dict[str, Any]:
        _warm(step, warm_s)
        self._collector.on()
        for _ in range(count):
            step()
        self._collector.off()
        totals, counts = self._totals()
        found = {
            name: [often - self._before.get(name, (0, 0))[0], ns - self._before.get(name, (0, 0))[1]]
            for name, (often, ns) in totals.items()
        }
        self._before = totals
        return {"kernels": {name: row for name, row in found.items() if row[0]}, "counts": counts}

    def _totals(self) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
        """Of all windows so far."""
        self._collector._module.device_flush()
        raw = self._collector._module.snapshot()
        totals: dict[str, tuple[int, int]] = {}
        for leaf in raw["leaves"]:
            name, often, ns = raw["names"][leaf[2]], leaf[4], leaf[6]
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + often, before[1] + ns)
        return totals, raw["device"]


class _Kineto:
    def window(self, step: Step, count: int, warm_s: float) -> dict[str, Any]:
        profiler: Any = torch.autograd.profiler.profile(use_device="cuda", use_kineto=True)
        profiler._prepare_trace()
        _warm(step, warm_s)
        profiler._start_trace()
        for _ in range(count):
            step()
        profiler.__exit__(None, None, None)
        found: dict[str, list[int]] = {}
        for event in profiler.kineto_results.events():
            # Annotations of the device span the kernels below them.
            if "CUDA" in str(event.device_type()) and not event.is_user_annotation():
                row = found.setdefault(event.name(), [0, 0])
                row[0] += 1
                row[1] += event.duration_ns()
        return {"kernels": found}


SOURCES: dict[str, Callable[[], Source]] = {"watch": _Watch, "trace": _Kineto}
