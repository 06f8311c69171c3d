"""A watcher: takes what is found about a running program to a collector, and the tree out of it.

Nothing here raises into the program. What goes wrong ends the collection and becomes `problem`, one sentence.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from lanewise.capture.boundaries.finder import StepFinder
from lanewise.capture.boundaries.functions import FunctionSteps
from lanewise.capture.boundaries.import_hooks import ImportWatch
from lanewise.capture.context import running
from lanewise.capture.context.collector import Collector, choose
from lanewise.capture.context.noticing import Noticing, cost_of_noticing
from lanewise.capture.context.pace import Pace
from lanewise.capture.context.saver import SAVE_EVERY_SECONDS, Endings, Saver, write
from lanewise.capture.context.turns import Turns
from lanewise.capture.file.periods import Periods
from lanewise.capture.inside import our_modules
from lanewise.capture.on_demand.asking import Asking
from lanewise.capture.on_demand.ordered import Ordered
from lanewise.capture.profiling.own_profiler import OwnProfiler
from lanewise.capture.timing.watch_budget import Budget
from lanewise.errors import LanewiseError, UsageError
from lanewise.tree.watching.watched import Watched

if TYPE_CHECKING:
    from lanewise.tree.model import Tree
    from lanewise.tree.slowing.against_baseline import AgainstBaseline
    from lanewise.tree.slowing.lookout import Lookout
    from lanewise.tree.slowing.slowdown import Slowdown

__all__ = ["Watcher"]


class Watcher:
    """Watches the program that it runs inside. Made by `watch`.

    Attributes:
        problem: why nothing or less was collected, one sentence; "" if all went well.
    """

    def __init__(
        self,
        out: Path | None = None,
        *,
        turns: Turns | Budget | None = None,
        way: str = "auto",
        frames: bool = True,
        device: bool = True,
        lines: bool = False,
        max_nodes: int = 200_000,
        step_on: str | None = None,
        save_every: float = SAVE_EVERY_SECONDS,
        source: str = "",
        alerts: bool = True,
        on_slowdown: Callable[[Slowdown], None] | None = None,
        baseline: Path | None = None,
        rotate: float = 0.0,
        rotate_keep: int = 48,
        asking: Asking | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        # The program may change its working directory.
        self.out = out.absolute() if out is not None else None
        self.problem = ""
        self._turns = turns or Turns()
        sampled = isinstance(self._turns, Budget) or self._turns.every > 0
        self._pace = Pace(self._turns, self._look if alerts or sampled else None)
        self._alerts = alerts
        self._baseline = baseline.absolute() if baseline is not None and alerts else None
        self._against: AgainstBaseline | None = None
        self._periods = Periods(self.out, rotate, rotate_keep, write) if self.out is not None and rotate else None
        self._slower_than_baseline: list[Slowdown] = []
        self._lookout: Lookout | None = None
        self._on_slowdown = on_slowdown
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
        self._asking = asking or Asking()
        self._recordings = self._asking.recordings(self.out, source, self._finder, self, log)
        self._started = False
        self._finished = False
        self._process = os.getpid()
        self._saver: Saver | None = None
        self._endings: Endings | None = None
        self._noticing = Noticing(0.0, 0.0)
        self._lock = threading.Lock()
        self._tree: Tree | None = None
        self._own = OwnProfiler(lambda _: None, self._profiler_begins, self._profiler_ended, only_recording=True)
        self._gave_way = False

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
        if self._started:
            raise UsageError("this watcher has been used; make another with watch()")
        self._started = True
        if not running.claim(self):
            self._finished = True
            self._say("another watch() is running in this process; this one collects nothing")
            return
        self._import.install()
        self._asking.open_signal(self._recordings, self._log)

    def step(self) -> None:
        """A step ended here. From the first call on, only these calls count."""
        if not self._finished:
            self._finder.call()

    def record(self, steps: int = 10, *, stacks: bool = False, memory: bool = False) -> None:
        """Records the next steps in full, beside the tree; the program goes on, and this returns at once.

        LanewiseError if that cannot be, as where a recording is under way. The trace is the last of `traces` once `steps`
        and some twenty steps more, which are timed without a profiler, have gone by.
        """
        if refused := self._recordings.ask(Ordered(steps=steps, stacks=stacks, memory=memory)):
            raise LanewiseError(refused)

    @property
    def traces(self) -> tuple[Path, ...]:
        """Traces of recordings that were asked for, the latest last."""
        return tuple(self._recordings.traces)

    def stop(self) -> None:
        """Stop, take everything out of the program, and write the file if there is one. Safe to call twice."""
        if self._finished or not self._started or os.getpid() != self._process:
            return
        self._finished = True
        self._import.uninstall()
        if self._saver is not None:
            self._saver.stop()
        self._asking.close()
        try:
            self._recordings.finish("program ended")
            self._pace.end()
            self._finder.uninstall()
            self._finder.remove_late()
            self._own.uninstall()
            collector = self._collector
            if collector is not None:
                if self._pace.short_steps:
                    with contextlib.suppress(Exception):
                        self._noticing = cost_of_noticing(self._finder.source)
                collector.close()
                self._tree = self._read(collector)
            if self._lookout is not None:
                self._lookout.close()
        except Exception as error:
            self._failed(error)
        self._finder.uninstall()
        self._finder.remove_late()
        running.release()
        if self.out is not None and self._tree is not None:
            try:
                write(self._tree, self.out)
                self.written(self._tree, over=True)
            except (OSError, LanewiseError) as error:
                self._say(f"cannot write {self.out}: {getattr(error, 'strerror', None) or error}")
        if self._endings is not None:
            self._endings.let_go()

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
            write(tree, target)
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
        self._pace.restart()

    def boundary(self) -> None:
        """A step ended, and the next begins."""
        if self._finished:
            return
        try:
            self._pace.boundary()
        except Exception as error:
            self._failed(error)
        if self._recordings.busy:
            self._recordings.boundary()

    # -- recordings that somebody asks for ------------------------------------------------------------------------------

    def pause(self) -> None:
        """See `Collecting`."""
        self._pace.pause()

    def resume(self) -> None:
        """See `Collecting`: the process stays slower after a profiler, so that what follows is compared with itself."""
        self._pace.resume()
        if self._lookout is not None:
            self._lookout.begin_anew()

    def _profiler_begins(self) -> None:
        """The program's own profiler would record no device beside us."""
        collector = self._collector
        if collector is not None and collector.device == "collected" and not self._gave_way and not self._finished:
            self._gave_way = True
            self._log("the program profiles itself: nothing is collected until its profiler has stopped")
            self.pause()

    def _profiler_ended(self) -> None:
        if self._gave_way and not self._finished:
            self._gave_way = False
            self.resume()

    def ended_from_outside(self, by: str) -> None:
        """A signal ends the program: a recording that has begun is written."""
        with contextlib.suppress(Exception):
            self._recordings.finish(by)

    # -- what becomes slower -------------------------------------------------------------------------------------------

    def _look(self, seen: int, watched: int) -> int:
        """A step ended; see `Lookout.look`. What goes wrong here ends the looking, and not the collection."""
        try:
            source = self._collector.followed if self._collector is not None else None
            if source is None:
                return sys.maxsize - 1
            if self._lookout is None:
                with our_modules():
                    from lanewise.capture.context.sites import frame_name
                    from lanewise.tree.slowing.lookout import Lookout

                self._lookout = Lookout(
                    source, frame_name, self._slower, follow=self._alerts, sampled=bool(self._pace.every)
                )
            return self._lookout.look(seen, watched)
        except Exception as error:
            self._log(f"what becomes slower is not followed any more: {type(error).__name__}: {error}")
            return sys.maxsize - 1

    def _sampling_error(self) -> float:
        """See `Watched`; of a watcher that watches every step none."""
        found = self._lookout.sampling_error if self._lookout is not None and self._pace.every else -1.0
        # What no window has seen may all be in one place.
        return found if found < 0 else round(min(1.0, found + self._pace.unseen), 5)

    def written(self, tree: Tree, *, over: bool) -> None:
        """This is the tree so far, just written by a thread of ours: what else is to be done with it."""
        with our_modules():
            try:
                if self._periods is not None:
                    self._periods.look(tree, over=over)
            except OSError as error:
                self._log(f"no more periods are written: {error}")
                self._periods = None
            if self._baseline is None or over:
                return
            if self._against is None:
                from lanewise.tree.slowing.against_baseline import AgainstBaseline

                self._against = AgainstBaseline(self._baseline, self._slower_than_in_baseline, self._log)
            self._against.look(tree)

    def _slower_than_in_baseline(self, found: Slowdown) -> None:
        self._slower_than_baseline.append(found)
        self._slower(found)

    def _slower(self, found: Slowdown) -> None:
        with our_modules():
            from lanewise.tree.watching.watched_text import slowdown_line

        self._log(slowdown_line(found))
        if self._on_slowdown is not None:
            self._on_slowdown(found)

    # -- ours ----------------------------------------------------------------------------------------------------------

    def _torch_is_ready(self) -> None:
        try:
            self._collector, self._reason = choose(
                self._way, self._log, frames=self._frames, device=self._device, max_nodes=self._max_nodes
            )
            target = self._step_on
            self._finder.install([lambda found: FunctionSteps(found, target)] if target else [])
            if not self._collector.windowed:
                self._own.install()
            self._pace.begin(self._collector)
            self._asking.open_port(self._recordings, self._log)
            if self.out is not None:
                self._endings = self._collector.endings()
                self._saver = Saver(self, self.out, self._save_every, self._endings, self._log)
                self._saver.start()
        except Exception as error:
            self._failed(error)

    def _read(self, collector: Collector) -> Tree:
        with self._lock, our_modules():
            return collector.tree(self._watched(collector), source=self._source, lines=self._lines)

    def _watched(self, collector: Collector) -> Watched:
        callbacks, losses = collector.counts()
        energy = self._pace.energy
        return Watched(
            way=collector.way,
            reason=self._reason,
            frames=collector.frames,
            device=collector.device,
            steps_seen=self._pace.steps_seen,
            steps_watched=self._pace.steps_on,
            start_up_steps=self._pace.start_up_steps,
            every=self._pace.every,
            steps=self._pace.steps,
            seconds=round(self._pace.on_ns / 1e9, 6),
            callbacks=callbacks,
            callback_ns=collector.callback_ns,
            losses=losses,
            checks=collector.checks,
            distortion=self._pace.distortion(*self._noticing),
            joules=round(energy.joules, 3) if energy else 0.0,
            joule_steps=energy.steps if energy else 0,
            joule_seconds=round(energy.seconds, 6) if energy else 0.0,
            budget=self._turns.share if isinstance(self._turns, Budget) else 0.0,
            sampling_error=self._sampling_error(),
            slowdowns=(*(self._lookout.found if self._lookout is not None else ()), *self._slower_than_baseline),
            history=self._lookout.history if self._lookout is not None else (),
        )

    def _failed(self, error: BaseException) -> None:
        """Our own code failed: say so once, and let go of the program."""
        text = str(error) if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
        self._say(f"nothing more is collected: {text}")
        if os.environ.get("LANEWISE_DEBUG"):
            sys.excepthook(type(error), error, error.__traceback__)
        with contextlib.suppress(Exception):
            self._pace.end()
        self._finder.uninstall()
        self._own.uninstall()

    def _say(self, text: str) -> None:
        if not self.problem:
            self.problem = text
            self._log(text)

    def forked(self) -> None:
        """In a forked child nothing is collected, and nothing of ours acts."""
        with contextlib.suppress(Exception):
            self._finished = True
            self._collector = None
            self._asking.forked()
            self._recordings.forked()
            self._import.uninstall()
            self._finder.uninstall()
            self._finder.remove_late()
            self._own.uninstall()
