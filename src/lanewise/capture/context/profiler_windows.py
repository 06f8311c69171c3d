"""The way that works wherever torch's profiler does: short windows of it, folded into a tree and thrown away.

Each window is one or a few steps, after one step for the profiler to warm up. Its trace is written to a temporary file,
read as any other trace, added to the tree, and deleted: what is kept grows with contexts, not with windows.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.capture.accelerator import current_device
from lanewise.capture.context.saver import NoEndings
from lanewise.capture.file import event_counts
from lanewise.capture.inside import our_modules
from lanewise.capture.own_frames import OwnFrames
from lanewise.capture.profiling import faults
from lanewise.capture.profiling.own_profiler import OwnProfiler
from lanewise.capture.profiling.profiler import Flags, Session, profiler_is_running
from lanewise.capture.thread_identity import own_threads
from lanewise.errors import LanewiseError
from lanewise.tree.watching.watched import Watched

if TYPE_CHECKING:
    from lanewise.tree.model import Tree

__all__ = ["EVERY", "Windows"]

EVERY = 500
"""Steps from one window to the next where nothing else is asked for: one window costs about as much as several steps."""


class Windows:
    """Folds windows of torch's profiler. `ready` a step before `on`; `on` and `off` at step boundaries.

    Args:
        frames: record Python frames and modules.

    Attributes:
        checks: what went wrong in a window, by its kind.
    """

    way = "windows"
    windowed = True
    followed = None
    callback_ns = 0.0

    def __init__(self, *, frames: bool = True) -> None:
        self.frames = "recorded" if frames else "none"
        self.device = "not collected: no device was used"
        self.checks: dict[str, str] = {}
        # As the native collector does; and the next step may come on another thread.
        self._flags = Flags(shapes=False, stacks=frames, all_threads=True)
        self._own = OwnProfiler(lambda _: None, self._stand_back)
        self._own.install()
        self._session: Session | None = None
        self._recording = False
        self._tree: Tree | None = None
        self._operators = 0
        self._discarded = 0

    def endings(self) -> NoEndings:
        """Nothing here can take a signal."""
        return NoEndings()

    def started_up(self) -> None:
        """A window holds no start-up."""

    def ready(self) -> None:
        """Attach the profiler: the next step warms it up."""
        if self._session is not None:
            return
        if self._own.running or profiler_is_running():
            self._discard("another profiler", "another torch profiler was running, so a window was left out")
            return
        device = current_device().name
        if device != "cpu":
            self.device = "collected"
        self._session = Session(self._flags, device)
        self._session.prepare()

    def on(self) -> None:
        """A window begins."""
        self.ready()
        if self._session is not None:
            current_device().synchronize()
            self._session.start()
            self._recording = True

    def off(self) -> None:
        """The window ends and is folded. Takes as long as stopping, writing and reading it: 0.1 s and more."""
        session, self._session = self._session, None
        if session is None:
            return
        if not self._recording:
            session.abandon()
            return
        self._recording = False
        current_device().synchronize()
        session.stop()
        with tempfile.TemporaryDirectory(prefix="lanewise-") as folder:
            path = Path(folder) / "window.json"
            session.export(str(path))
            path.write_bytes(OwnFrames(own_threads).without(path.read_bytes()))
            found = event_counts.scan(path)
            wrong = faults.find(found, self._flags, session.messages, session.missing)
            lossy = [fault for fault in wrong if faults.worth_a_retry([fault])]
            if lossy or not found.operators:
                self._discard("windows", lossy[0].sentence if lossy else "a window without operators was left out")
                return
            with our_modules():
                self._fold(path)
            self._operators += found.operators

    def uncounted(self) -> AbstractContextManager[None]:
        """See `Collector`: nothing of ours runs inside of a window."""
        return nullcontext()

    def make_way(self) -> None:
        """See `Collector`: a window that has begun is folded if it was recording, else thrown away."""
        self.off()

    def close(self) -> None:
        """What is open is folded if it was recording, else thrown away."""
        try:
            self.off()
        finally:
            self._own.uninstall()

    def _stand_back(self) -> None:
        """The program starts a profiler of its own, and two cannot run at once: it gets the process."""
        session, self._session = self._session, None
        self._recording = False
        if session is not None:
            session.abandon()
            self._discard("another profiler", "the program started its own torch profiler, so a window was left out")

    def tree(self, watched: Watched, *, source: str, lines: bool) -> Tree:
        """The sum of all windows so far. LanewiseError without any."""
        if self._tree is None:
            raise LanewiseError("no window has been folded: fewer steps went by than one window needs")
        return self._tree.with_info(source=source, watched=watched, steps=())

    def counts(self) -> tuple[int, dict[str, int]]:
        """Operators folded so far, and windows discarded."""
        return self._operators, {"windows_discarded": self._discarded} if self._discarded else {}

    def _fold(self, path: Path) -> None:
        from lanewise.trace.reader import read
        from lanewise.tree.algebra import merge
        from lanewise.tree.build import build_tree

        tree = build_tree(read(str(path), cache=False))
        tree = tree.with_info(source="", steps=(), watched=Watched(way=self.way, steps_watched=1))
        if self._tree is not None:
            tree = merge([self._tree, tree])
        self._tree = tree

    def _discard(self, kind: str, sentence: str) -> None:
        self._discarded += 1
        self.checks = {**self.checks, kind: sentence}
