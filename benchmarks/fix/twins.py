"""Bad, fixed and good form of a program in one process, in turns: the step time of each, without a profiler.

What differs from process to process (where memory lies, which core it runs on) is the same for all three then. Their loop
over the steps is wrapped in the source; everything else runs as it is written. A step's time is that of all steps after the
first quarter, waited for on the device, over their number.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["measure_twins", "wrapped"]

_LOOPS = (("in range(args.steps):", "in timed(range(args.steps)):"), ("in batches:", "in timed(batches):"))
_ROUNDS, _ROUND_S = 8, 0.1
_FEW, _LEAST, _MOST = 8, 20, 200
_SLOW_S = 0.2
_DYNAMO = ("recompile_limit", "cache_size_limit", "automatic_dynamic_shapes", "assume_static_by_default")


def wrapped(source: str) -> str:
    """The source with its loop over the steps wrapped. Raises ValueError if there is not exactly one."""
    if sum(source.count(loop) for loop, _ in _LOOPS) != 1:
        raise ValueError("it has no loop over its steps, or several")
    for loop, timed in _LOOPS:
        source = source.replace(loop, timed)
    return source


def measure_twins(path: Path, edited: str, device: str, output: Path, seconds: float) -> None:
    """Measure one program; `{"bad": us, "fixed": [us], "good": [us], "steps": n}` goes to a file.

    Args:
        edited: the fixed source. seconds: after which no further round begins.
    """
    began = time.monotonic()
    plain = path.read_text()
    fixed = _Side(path, edited, [], device)
    good = _Side(path, plain, ["--good"], device)
    for side in (fixed, good):  # compiles, fills caches
        side.run(_FEW)
    pace = good.run(_FEW)
    steps = max(_LEAST, min(_MOST, round(_ROUND_S * 1e6 / pace)))
    found: dict[str, Any] = {"steps": steps, "fixed": [], "good": []}
    for number in range(_ROUNDS):
        pair = [("fixed", fixed), ("good", good)]
        for name, side in pair if number % 2 else pair[::-1]:
            found[name].append(round(side.run(steps), 3))
        if time.monotonic() - began > seconds and number:
            break
    bad = _Side(path, plain, [], device)
    first = bad.run(_FEW)
    found["bad"] = round(first if first > _SLOW_S * 1e6 / _FEW else bad.run(max(_FEW, min(steps, _MOST))), 3)
    output.write_text(json.dumps(found))


class _Side:
    """One form of the program, loaded as a module of its own, with the settings that it makes when it is loaded."""

    def __init__(self, path: Path, source: str, words: Sequence[str], device: str) -> None:
        self._words = [str(path), *words, "--device", device]
        self._cuda = device.startswith("cuda")
        self._us = 0.0
        self._names: dict[str, Any] = {"__name__": "twin", "__file__": str(path), "timed": self._timed}
        before = _settings()
        exec(compile(wrapped(source), str(path), "exec"), self._names)
        self._settings = _settings()
        _set(before)

    def run(self, steps: int) -> float:
        """us per step."""
        before, argv = _settings(), sys.argv
        _set(self._settings)
        sys.argv = [*self._words, "--steps", str(steps)]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self._names["main"]()
        finally:
            sys.argv = argv
            _set(before)
        return self._us

    def _timed(self, steps: Any) -> Generator[Any]:
        skip = max(1, len(steps) // 4)
        start = 0
        for at, step in enumerate(steps):
            if at == skip:
                self._wait()
                start = time.perf_counter_ns()
            yield step
        self._wait()
        self._us = (time.perf_counter_ns() - start) / (len(steps) - skip) / 1e3

    def _wait(self) -> None:
        if self._cuda:
            import torch

            torch.cuda.synchronize()


def _settings() -> list[Any]:
    """Process-wide settings that a program makes, which the other form must not inherit."""
    import torch

    config = sys.modules.get("torch._dynamo.config")
    return [
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        {name: getattr(config, name) for name in _DYNAMO if hasattr(config, name)} if config else {},
    ]


def _set(settings: list[Any]) -> None:
    import torch

    precision, plans, dynamo = settings
    setters: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.set_float32_matmul_precision, precision),
        (torch.backends.cuda.enable_cudnn_sdp, plans),
    ]
    for setter, value in setters:
        setter(value)
    for name, value in dynamo.items():
        setattr(sys.modules["torch._dynamo.config"], name, value)
