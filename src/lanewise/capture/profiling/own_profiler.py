"""Programs that profile themselves: two sessions cannot run at once, so ours gives way, and theirs is explained.

torch's profiler classes are watched, not replaced: every call goes through, and all is as before once `uninstall` ran.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewise.capture.boundaries.step_boundaries import Source
from lanewise.capture.boundaries.watched_method import watch_method
from lanewise.capture.lazy_torch import torch_part

__all__ = ["OURS", "OwnProfiler", "announce"]

OURS = "lanewise_session"
"""Attribute that marks a profiler object as ours."""


_announced: list[Path] = []


def announce(path: Path) -> None:
    """A handler of ours moved what it exported to `path`."""
    _announced[:] = [path.absolute()]


class OwnProfiler:
    """Watches the program's use of torch's profiler; as a source of steps, a boundary at each of its `step()` calls.

    Args:
        found: is told of such a call. starting: is told of each profiler that begins. ended: of the end of the last one.
        only_recording: of those that keep rows, not of those that annotate for another tool.

    Attributes:
        unexported: the program's last session if it wrote no trace of it.
    """

    name = "profiler"

    def __init__(
        self,
        found: Callable[[Source], None],
        starting: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
        *,
        only_recording: bool = False,
    ) -> None:
        self.label = "prof.step()"
        self._exported: Path | None = None
        self.unexported: Any = None
        self._found = found
        self._starting = starting
        self._ended = ended
        self._only_recording = only_recording
        self._restore: list[Callable[[], None]] = []
        self._open: set[int] = set()

    @property
    def running(self) -> bool:
        """Whether a profiler of the program has begun and not ended, on any thread."""
        return bool(self._open)

    @property
    def exported(self) -> Path | None:
        """The latest trace that the program wrote, if it is still there."""
        for path in (self._exported, *_announced):
            if path is not None and path.exists():
                return path
        return None

    def install(self) -> None:
        """Watch from now on."""
        _announced.clear()
        inner, outer = torch_part("torch.autograd.profiler"), torch_part("torch.profiler.profiler")
        self._watch(inner.profile, "_prepare_trace", before=self._prepares)
        self._watch(inner.profile, "__exit__", after=self._stopped)
        # They keep no rows, and refuse to begin beside another profiler.
        for name in () if self._only_recording else ("emit_nvtx", "emit_itt"):
            if hasattr(inner, name):
                self._watch(getattr(inner, name), "__enter__", before=self._prepares)
                self._watch(getattr(inner, name), "__exit__", after=self._left)
        self._watch(inner.profile, "export_chrome_trace", after=self._exports)
        # Compressed files are written by the outer class, from a temporary one of the inner: the outer's name comes
        # last.
        self._watch(outer._KinetoProfile, "export_chrome_trace", after=self._exports)
        self._watch(outer.profile, "step", after=self._steps)

    def uninstall(self) -> None:
        """As before."""
        for restore in self._restore:
            restore()
        self._restore.clear()

    def _watch(
        self,
        owner: type,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> None:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(this: Any, *args: Any, **kwargs: Any) -> Any:
                foreign = not getattr(this, OURS, False)
                if foreign and before is not None:
                    with contextlib.suppress(Exception):
                        before(this, *args, **kwargs)
                result = original(this, *args, **kwargs)
                if foreign and after is not None:
                    with contextlib.suppress(Exception):
                        after(this, *args, **kwargs)
                return result

            return watched

        self._restore.append(watch_method(owner, name, around))

    def _prepares(self, this: Any, *_: Any) -> None:
        self._open.add(id(this))
        self._starting()

    def _left(self, this: Any, *_: Any) -> None:
        if id(this) in self._open:
            self._open.remove(id(this))
            if not self._open:
                self._ended()

    def _stopped(self, this: Any, *_: Any) -> None:
        self._left(this)
        self.unexported = this

    def _exports(self, this: Any, path: Any = None, *_: Any, **more: Any) -> None:
        self.unexported = None
        self._exported = Path(str(path if path is not None else more.get("path", ""))).absolute()

    def _steps(self, this: Any, *_: Any) -> None:
        self._found(self)
