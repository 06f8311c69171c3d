"""Records the next steps of a watched program in full, each time that somebody asks, while the program goes on.

Who asks may be on any thread, or a signal handler. What is done about it is done at the boundaries of steps, by the thread
that makes them: the collector is paused, a few steps are timed without any profiler, the profiler warms up, the steps are
recorded and written, and the collector goes on. Nothing here raises into the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lanewise.capture.boundaries.finder import StepFinder
from lanewise.capture.file.rotation import name_now, rotate
from lanewise.capture.file.save import rank_suffix
from lanewise.capture.job.held_signal import HeldSignal
from lanewise.capture.on_demand.ordered import Ordered
from lanewise.capture.profiling.profiler import Flags
from lanewise.capture.recording import Options, Recording
from lanewise.capture.schedule import Plan
from lanewise.capture.window import Phase

__all__ = ["Collecting", "OnDemand"]

_MOST_SECONDS = 60.0
"""Recording ends at the first boundary after so long, however many steps were asked for."""
_WAIT_SECONDS = 3.0
"""What ends the program from outside waits so long for a trace that is being written."""


class Collecting(Protocol):
    """What goes on all the time, and makes room for a recording."""

    def pause(self) -> None:
        """Nothing is collected, and no profiler of ours is attached."""
        ...

    def resume(self) -> None:
        """As before."""
        ...


class OnDemand:
    """Recordings of one watched program, one at a time.

    Args:
        program: its name without a rank, first part of the traces' names. folder: for the traces.
        keep: how many of them; older ones are deleted. usual: what is recorded unless somebody asks for something else.
        finder: finds the steps, and passes them to `boundary`.
        collecting: is paused meanwhile.
        log: is told of each recording.

    Attributes:
        busy: whether `boundary` has something to do.
        traces: those of this process that were kept.
        problem: why the last recording failed; "" if it did not.
    """

    def __init__(
        self,
        program: str,
        folder: Path,
        *,
        keep: int,
        usual: Ordered,
        finder: StepFinder,
        collecting: Collecting,
        log: Callable[[str], None],
    ) -> None:
        self._program = program
        self.folder = folder
        self.busy = False
        self.traces: deque[Path] = deque(maxlen=keep)
        self.problem = ""
        self.usual = usual
        self._keep = keep
        self._finder = finder
        self._collecting = collecting
        self._log = log
        self._order: Ordered | None = None
        self._recording: Recording | None = None
        self._over = False
        self._lock = threading.Lock()

    def ask(self, order: Ordered) -> str:
        """The next steps are to be recorded. Why they will not be, one sentence; "" if they will."""
        if self._over:
            return "the program is about to end, or is not watched any more"
        if self.busy:
            return "a recording is under way: ask again when it is written"
        self._order, self.busy = order, True
        self._log(f"the next {order.steps} step{'' if order.steps == 1 else 's'} will be recorded, into {self.folder}")
        return ""

    def status(self) -> dict[str, Any]:
        """What goes on, as plain data."""
        recording, order = self._recording, self._order
        state = (
            recording.window.phase.value if recording is not None else "idle" if order is None else "waiting for a step"
        )
        return {"state": state, "traces": [str(path) for path in self.traces], "problem": self.problem}

    def boundary(self) -> None:
        """A step ended, on this thread."""
        # Where another thread is at it, this step is none of those that are recorded.
        if not self.busy or self._over or not self._lock.acquire(blocking=False):
            return
        try:
            # A trace that is being written is written to its end.
            with HeldSignal(signal.SIGINT):
                self._step()
        except Exception as error:
            self._failed(error)
        finally:
            self._lock.release()

    def finish(self, reason: str) -> None:
        """The program ends: what has been recorded so far is written."""
        if self._over:
            return
        self._over = True
        if self._lock.acquire(timeout=_WAIT_SECONDS):
            self._lock.release()
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.finish(reason)
            self._written(recording)
        elif self._order is not None:
            self._log("it ended before a step came that could be recorded")

    def forked(self) -> None:
        """This is another process; its recording ends by itself."""
        self._over, self._recording = True, None

    def _step(self) -> None:
        if self._recording is None:
            order, self._order = self._order, None
            if order is None:
                return
            self._recording = self._begun(order)
        self._recording.step()
        # What the device draws is counted all the time.
        if self._recording.window.phase in (Phase.METERED, Phase.DONE):
            recording, self._recording = self._recording, None
            recording.finish()
            self._written(recording)
            self._resume()

    def _begun(self, order: Ordered) -> Recording:
        self._collecting.pause()
        plan = Plan(skip=0, active_min=order.steps, active_max=order.steps, active_seconds=_MOST_SECONDS)
        flags = Flags(stacks=order.stacks, memory=order.memory, all_threads=True)
        options = Options(plan=plan, flags=flags, out=self.folder, name=name_now(self._program))
        recording = Recording(options, self._log, steps_from=self._finder)
        recording.start()
        return recording

    def _written(self, recording: Recording) -> None:
        self.problem = recording.problem
        if recording.trace is None:
            self.problem = self.problem or "nothing was recorded: the program ended too early"
            if not recording.problem:
                self._log(self.problem)
            return
        self.traces.append(recording.trace)
        self._log(f"next: lanewise explain {recording.shown}")
        rotate(self.folder, self._program, rank_suffix(os.environ), self._keep, ".json.gz")

    def _resume(self) -> None:
        self._order, self.busy = None, False
        self._collecting.resume()

    def _failed(self, error: Exception) -> None:
        self.problem = f"nothing was recorded: {type(error).__name__}: {error}"
        self._log(self.problem)
        self._recording = None
        with contextlib.suppress(Exception):
            self._resume()
