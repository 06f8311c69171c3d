"""`watch`: collects the calling-context tree of a running program, for as long as it likes.

    with lanewise.watch("run.lw") as watcher:
        train()
    watcher.tree          # as from a trace

Nothing here raises into the program. What goes wrong ends the collection and becomes `problem`, one sentence.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from lanewise.errors import LanewiseError, MissingDependencyError, UsageError
from lanewise.record.context.native import Native
from lanewise.record.context.turns import StepTimes, Turns
from lanewise.record.context.windows import EVERY, Windows
from lanewise.record.finder import StepFinder
from lanewise.record.functions import FunctionSteps
from lanewise.record.imported import ImportWatch
from lanewise.tree.watched import Watched

if TYPE_CHECKING:
    from lanewise.tree.model import Tree

__all__ = ["WAYS", "Watcher", "watch"]

WAYS = ("auto", "native", "windows")

_SAVE_EVERY_SECONDS = 60.0


class Collector(Protocol):
    """One way to collect.

    Attributes:
        way, frames, device, checks, callback_ns: as in `Watched`.
        windowed: whether it can only collect whole steps, few at a time.
    """

    way: str
    frames: str
    device: str
    checks: dict[str, str]
    callback_ns: float
    windowed: bool

    def ready(self) -> None:
        """It will be switched on at the next boundary."""
        ...

    def on(self) -> None:
        """Collect from here on."""
        ...

    def off(self) -> None:
        """Do not."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...

    def tree(self, watched: Watched, *, source: str, lines: bool) -> Tree:
        """What there is so far."""
        ...

    def counts(self) -> tuple[int, dict[str, int]]:
        """Operators so far, and losses by name."""
        ...


class Watcher:
    """Watches the program that it runs inside. Made by `watch`.

    Attributes:
        problem: why nothing or less was collected, one sentence; "" if all went well.
    """

    def __init__(
        self,
        out: Path | None = None,
        *,
        turns: Turns | None = None,
        way: str = "auto",
        frames: bool = True,
        device: bool = True,
        lines: bool = False,
        max_nodes: int = 200_000,
        step_on: str | None = None,
        save_every: float = _SAVE_EVERY_SECONDS,
        source: str = "",
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        # The program may change its working directory.
        self.out = out.absolute() if out is not None else None
        self.problem = ""
        self._turns = turns or Turns()
        self._way = way
        self._frames = frames
        self._device = device
        self._lines = lines
        self._max_nodes = max_nodes
        self._step_on = step_on
        self._save_every = save_every
        self._source = source
        self._log = log
        self._reason = ""
        self._collector: Collector | None = None
        self._import = ImportWatch("torch", self._torch_is_ready)
        self._finder = StepFinder(self, self._failed)
        self._times = StepTimes()
        self._started = False
        self._finished = False
        self._process = os.getpid()
        self._saver: _Saver | None = None
        self._lock = threading.Lock()
        self._tree: Tree | None = None
        # Steps.
        self._thread = 0
        self._boundaries = 0
        self._steps_on = 0
        self._on = False
        self._warming = False
        self._on_since = 0
        self._on_ns = 0
        self._last = 0

    # -- the program's side ------------------------------------------------------------------------------------------

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, now or as soon as the program imports torch. UsageError if it was used before."""
        global _running
        if self._started:
            raise UsageError("this watcher has been used; make another with watch()")
        self._started = True
        with _running_lock:
            if _running is not None:
                self._finished = True
                self._say("another watch() is running in this process; this one collects nothing")
                return
            # Kept here: a watcher that nobody holds on to goes on until the program ends.
            _running = self
        _act_on_fork_and_exit()
        self._import.install()

    def step(self) -> None:
        """A step ended here. From the first call on, only these calls count."""
        if not self._finished:
            self._finder.call()

    def stop(self) -> None:
        """Stop, take everything out of the program, and write the file if there is one. Safe to call twice."""
        global _running
        if self._finished or not self._started or os.getpid() != self._process:
            return
        self._finished = True
        self._import.uninstall()
        if self._saver is not None:
            self._saver.stop()
        try:
            self._switch(False)
            collector = self._collector
            if collector is not None:
                collector.close()
                self._tree = self._read(collector)
        except Exception as error:
            self._failed(error)
        self._finder.uninstall()
        self._finder.remove_late()
        with _running_lock:
            _running = None
        if self.out is not None and self._tree is not None:
            try:
                _write(self._tree, self.out)
            except (OSError, LanewiseError) as error:
                self._say(f"cannot write {self.out}: {getattr(error, 'strerror', None) or error}")

    @property
    def tree(self) -> Tree:
        """The tree so far, or of all once stopped. LanewiseError if nothing was collected."""
        if self._tree is not None:
            return self._tree
        collector = self._collector
        if collector is None or self._finished:
            raise LanewiseError(self.problem or "nothing has been collected: torch was not used")
        return self._read(collector)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the tree so far to `path`. LanewiseError if it exists, without `force`, or cannot be written."""
        target = Path(path)
        if target.exists() and not force:
            raise LanewiseError(f"{target} exists; save(..., force=True) overwrites it")
        tree = self.tree
        try:
            _write(tree, target)
        except OSError as error:
            raise LanewiseError(f"cannot write {target}: {error.strerror or error}") from error
        return target

    # -- what the step finder says ---------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """A better source of boundaries never comes too late."""
        return False

    def restart(self) -> None:
        """Another source of boundaries counts from here on."""
        self._last = 0

    def boundary(self) -> None:
        """A step ended, and the next begins."""
        collector = self._collector
        if collector is None or self._finished:
            return
        thread = threading.get_ident()
        if self._thread != thread:
            if self._thread:
                return
            self._thread = thread
        now = time.perf_counter_ns()
        step = self._boundaries
        if self._last and not self._warming and self._turns.compared(step):
            self._times.add(now - self._last, on=self._on)
        self._boundaries += 1
        self._steps_on += self._on
        try:
            self._switch(self._turns.watched(step + 1))
            self._warming = collector.windowed and not self._on and self._turns.watched(step + 2)
            if self._warming:
                collector.ready()
        except Exception as error:
            self._failed(error)
        self._last = time.perf_counter_ns()

    # -- ours ----------------------------------------------------------------------------------------------------------

    def _torch_is_ready(self) -> None:
        try:
            self._collector = self._choose()
            if self._collector.windowed and not self._turns.every:
                self._turns = replace(self._turns, every=EVERY)
            target = self._step_on
            self._finder.install([lambda found: FunctionSteps(found, target)] if target else [])
            self._switch(self._turns.watched(0))
            if self.out is not None and self._save_every > 0:
                self._saver = _Saver(self, self._save_every)
                self._saver.start()
        except Exception as error:
            self._failed(error)

    def _choose(self) -> Collector:
        if self._way != "windows":
            try:
                return Native(
                    self._log,
                    frames=self._frames,
                    device=self._device,
                    or_nothing=self._way == "auto",
                    max_nodes=self._max_nodes,
                )
            except Exception as error:
                if self._way == "native":
                    raise
                self._reason = str(error) if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
                self._log(f"{self._reason}; short profiler windows are folded instead")
        return Windows(frames=self._frames)

    def _switch(self, on: bool) -> None:
        collector = self._collector
        if collector is None or on == self._on:
            return
        if on:
            self._on_since = time.perf_counter_ns()
            collector.on()
        else:
            collector.off()
            self._on_ns += time.perf_counter_ns() - self._on_since
        self._on = on

    def _read(self, collector: Collector) -> Tree:
        with self._lock:
            return collector.tree(self._watched(collector), source=self._source, lines=self._lines)

    def _watched(self, collector: Collector) -> Watched:
        callbacks, losses = collector.counts()
        on_ns = self._on_ns + (time.perf_counter_ns() - self._on_since if self._on else 0)
        return Watched(
            way=collector.way,
            reason=self._reason,
            frames=collector.frames,
            device=collector.device,
            steps_seen=self._boundaries,
            steps_watched=self._steps_on,
            every=self._turns.every,
            steps=self._turns.steps if self._turns.every else 0,
            seconds=round(on_ns / 1e9, 6),
            callbacks=callbacks,
            callback_ns=collector.callback_ns,
            losses=losses,
            checks=collector.checks,
            distortion=self._times.distortion(),
        )

    def _failed(self, error: BaseException) -> None:
        """Our own code failed: say so once, and let go of the program."""
        text = str(error) if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
        self._say(f"nothing more is collected: {text}")
        if os.environ.get("LANEWISE_DEBUG"):
            sys.excepthook(type(error), error, error.__traceback__)
        with contextlib.suppress(Exception):
            self._switch(False)
        self._finder.uninstall()

    def _say(self, text: str) -> None:
        if not self.problem:
            self.problem = text
            self._log(text)

    def forked(self) -> None:
        """In a forked child nothing is collected, and nothing of ours acts."""
        with contextlib.suppress(Exception):
            self._finished = True
            self._collector = None
            self._import.uninstall()
            self._finder.uninstall()
            self._finder.remove_late()


class _Saver(threading.Thread):
    """Writes what there is from time to time, so that a program that is killed leaves a file."""

    def __init__(self, watcher: Watcher, seconds: float) -> None:
        super().__init__(name="lanewise-saver", daemon=True)
        self._watcher = weakref.ref(watcher)
        self._seconds = seconds
        self._over = threading.Event()

    def run(self) -> None:
        """Until `stop`, or until nobody watches any more."""
        while not self._over.wait(self._seconds):
            watcher = self._watcher()
            if watcher is None or watcher.out is None:
                return
            with contextlib.suppress(Exception):
                _write(watcher.tree, watcher.out)

    def stop(self) -> None:
        """Write no more; waits for a file that is being written."""
        self._over.set()
        if self.is_alive():
            self.join(timeout=30)


def watch(
    out: str | os.PathLike[str] | None = None,
    *,
    every: int = 0,
    steps: int = 1,
    frames: bool = True,
    device: bool = True,
    lines: bool = False,
    measure: bool = True,
    way: str = "auto",
    step_on: str | None = None,
    max_nodes: int = 200_000,
    save_every: float = _SAVE_EVERY_SECONDS,
    source: str = "",
    log: Callable[[str], None] = lambda _: None,
) -> Watcher:
    """Watches a stretch of a program: `with lanewise.watch("run.lw") as watcher:`.

    Args:
        out: file for the tree, written when it stops and meanwhile; an existing one is overwritten.
        every, steps: watch `steps` of every `every` steps; all of them with `every` 0.
        frames: collect Python frames and modules.
        device: collect kernels, copies and sets of a CUDA device; the native collector can be told not to.
        lines: tell apart from which line of a function something is called.
        measure: leave out 20 early steps in turn, to measure what watching costs.
        way: "native", "windows" (short windows of torch's profiler), or "auto": the first that works.
        step_on: a step begins when this function is called: `train_step` of the script or `module:train_step`.
        max_nodes: contexts in all; what comes after is counted under `<truncated>`.
        save_every: seconds between two writes of the file; 0 for none before the end.
        source: name of the program, for the tree.
        log: is told what takes time and what goes wrong.

    Raises:
        UsageError: values that make no sense. MissingDependencyError: torch is not installed.
    """
    if way not in WAYS:
        raise UsageError(f"way is one of {', '.join(WAYS)}")
    if every < 0 or steps < 1 or (every and steps > every):
        raise UsageError("every must be 0 or more, and steps between 1 and every")
    if not 1000 <= max_nodes <= 250_000:
        raise UsageError("max_nodes must be between 1,000 and 250,000")
    if "torch" not in sys.modules:
        import importlib.util

        if importlib.util.find_spec("torch") is None:
            raise MissingDependencyError("watching needs torch, which is not installed here: pip install torch")
    return Watcher(
        Path(out) if out is not None else None,
        turns=Turns(every=every, steps=steps, pairs=20 if measure else 0),
        way=way,
        frames=frames,
        device=device,
        lines=lines,
        max_nodes=max_nodes,
        step_on=step_on,
        save_every=save_every,
        source=source,
        log=log,
    )


def _write(tree: Tree, path: Path) -> None:
    """Complete or not at all."""
    from lanewise.tree.store import dumps

    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(dumps(tree))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@cache
def _act_on_fork_and_exit() -> None:
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_stop_at_exit)


def _forked() -> None:
    global _running
    # The lock may be held by a thread that this process does not have.
    watcher, _running = _running, None
    if watcher is not None:
        watcher.forked()


def _stop_at_exit() -> None:
    if _running is not None:
        _running.stop()


_running: Watcher | None = None
_running_lock = threading.Lock()
