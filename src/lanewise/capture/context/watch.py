"""`watch`: collects the calling-context tree of a running program, for as long as it likes.

with lanewise.watch("run.lw") as watcher:
    train()
watcher.tree          # as from a trace
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.capture.context.collector import WAYS
from lanewise.capture.context.saver import SAVE_EVERY_SECONDS
from lanewise.capture.context.turns import Turns
from lanewise.capture.context.watcher import Watcher
from lanewise.capture.on_demand.asking import Asking
from lanewise.capture.timing.watch_budget import Budget
from lanewise.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from lanewise.tree.slowing.slowdown import Slowdown

__all__ = ["watch"]


def watch(
    out: str | os.PathLike[str] | None = None,
    *,
    every: int = 0,
    steps: int = 1,
    budget: float = 0.0,
    frames: bool = True,
    device: bool = True,
    lines: bool = False,
    measure: bool = True,
    way: str = "auto",
    step_on: str | None = None,
    max_nodes: int = 200_000,
    save_every: float = SAVE_EVERY_SECONDS,
    source: str = "",
    alerts: bool = True,
    on_slowdown: Callable[[Slowdown], None] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    rotate: float = 0.0,
    rotate_keep: int = 48,
    record_signal: str = "",
    record_port: int | None = None,
    record_steps: int = 10,
    record_keep: int = 10,
    log: Callable[[str], None] = lambda _: None,
) -> Watcher:
    """Watches a stretch of a program: `with lanewise.watch("run.lw") as watcher:`.

    Args:
        out: file for the tree, written when it stops and meanwhile; an existing one is overwritten.
        every, steps: watch `steps` of every `every` steps; all of them with `every` 0.
        budget: share of the run's time that watching may cost, 0.01 for 1 %: how often to watch follows from what it has
            cost so far; 0 for none. Shares then come with their sampling error.
        frames: collect Python frames and modules.
        device: collect kernels, copies and sets of a CUDA device; the native collector can be told not to.
        lines: tell apart from which line of a function something is called.
        measure: leave out 20 early steps in turn, to measure what watching costs.
        way: "native", "windows" (short windows of torch's profiler), or "auto": the first that works.
        step_on: a step begins when this function is called: `train_step` of the script or `module:train_step`.
        max_nodes: contexts in all; what comes after is counted under `<truncated>`.
        save_every: seconds between two writes of the file, as long as they are cheap; 0 for none before the end.
        source: name of the program, for the tree.
        alerts: follow what each place takes, and say when one becomes slower.
        on_slowdown: is called then, on the thread that makes the steps, or for a baseline on one of ours.
        baseline: tree file, or folder of them, of other runs: places that take longer than there are said as well. It is
            compared each time that the file is written.
        rotate: seconds after which what came since is written to a file of its own, `run-periods/run-DATE-TIME.lw` beside
            `run.lw`; 0 for none. rotate_keep: how many of them stay.
        record_signal: "USR1" or "USR2" has the next steps recorded in full, while the program goes on; "" for none.
        record_port: so does `POST /record?steps=20` at this port of 127.0.0.1; 0 for one that is free, None for none.
        record_steps: how many steps, where nobody says. record_keep: traces to keep; older ones of the program are deleted.
        log: is told what takes time and what goes wrong.

    Raises:
        UsageError: values that make no sense. MissingDependencyError: torch is not installed.
    """
    if way not in WAYS:
        raise UsageError(f"way is one of {', '.join(WAYS)}")
    if every < 0 or steps < 1 or (every and steps > every):
        raise UsageError("every must be 0 or more, and steps between 1 and every")
    if budget and (every or not 0.001 <= budget <= 0.5):
        raise UsageError("budget is between 0.001 and 0.5 (0.01 for 1 %), and stands in the place of every")
    if baseline and (out is None or not alerts or not save_every):
        raise UsageError("a baseline is compared when the file is written: give out, save_every and alerts")
    if rotate and (out is None or not save_every or rotate < 1 or rotate_keep < 1):
        raise UsageError("periods are of a second at least, and written with the file: give out and save_every")
    if not 1000 <= max_nodes <= 250_000:
        raise UsageError("max_nodes must be between 1,000 and 250,000")
    if "torch" not in sys.modules:
        import importlib.util

        if importlib.util.find_spec("torch") is None:
            raise MissingDependencyError("watching needs torch, which is not installed here: pip install torch")
    return Watcher(
        Path(out) if out is not None else None,
        turns=Budget(budget) if budget else Turns(every=every, steps=steps, pairs=20 if measure else 0),
        way=way,
        frames=frames,
        device=device,
        lines=lines,
        max_nodes=max_nodes,
        step_on=step_on,
        save_every=save_every,
        source=source,
        alerts=alerts,
        on_slowdown=on_slowdown,
        baseline=Path(baseline) if baseline else None,
        rotate=rotate,
        rotate_keep=rotate_keep,
        asking=Asking(
            signal=record_signal,
            port=record_port,
            steps=record_steps,
            keep=record_keep,
        ),
        log=log,
    )
