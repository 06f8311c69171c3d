"""A step boundary at every entry of one named Python function, found wherever the program defines it."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from lanewise.capture.boundaries.step_boundaries import Source

__all__ = ["FunctionSteps", "matches"]


class FunctionSteps:
    """Watches for `target`: `train_step` or `Trainer.step` of the script, or `package.module:train_step`.

    From Python 3.12 on, `sys.monitoring` reports the first entry of every code object and from then on only those of
    the target: all other code runs at full speed. On 3.11, `sys.setprofile` looks at every call until the target is
    entered for the first time, on the present thread and those that start later; then a wrapper takes the target's place.
    """

    name = "function"

    def __init__(self, found: Callable[[Source], None], target: str) -> None:
        self.label = target
        self._found = found
        module, _, self._qualname = target.rpartition(":")
        self._module = module or "__main__"
        self._watch: _Monitoring | _SetProfile | None = None

    def install(self) -> None:
        """Watch from now on, on the current thread where Python is older than 3.12."""
        if sys.version_info >= (3, 12):
            self._watch = _Monitoring(self._is_target, self._entered)
        else:
            self._watch = _SetProfile(self._is_target, self._entered)
        self._watch.install()

    def uninstall(self) -> None:
        """Stop watching; allowed inside the target."""
        if self._watch is not None:
            self._watch.uninstall()
            self._watch = None

    def _is_target(self, frame: FrameType) -> bool:
        return matches(frame.f_code, self._qualname) and frame.f_globals.get("__name__") == self._module

    def _entered(self) -> None:
        self._found(self)


def matches(code: CodeType, qualname: str) -> bool:
    """Whether `code` is the function of that name, at the top of its module or inside another function."""
    return code.co_qualname == qualname or code.co_qualname.endswith(f".<locals>.{qualname}")


class _Monitoring:
    """Python 3.12 and later."""

    def __init__(self, is_target: Callable[[FrameType], bool], entered: Callable[[], None]) -> None:
        self._is_target = is_target
        self._entered = entered
        self._tool: int | None = None

    def install(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        for tool in (4, 3, monitoring.PROFILER_ID):
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "lanewise")
                monitoring.register_callback(tool, monitoring.events.PY_START, self._started)
                monitoring.set_events(tool, monitoring.events.PY_START)
                # Functions that an earlier recording has looked at and left count as new again.
                monitoring.restart_events()
                self._tool = tool
                return

    def uninstall(self) -> None:
        tool, self._tool = self._tool, None
        if tool is not None:
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.free_tool_id(tool)

    def _started(self, code: CodeType, offset: int) -> Any:
        if self._is_target(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            self._entered()
            return None
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]


class _SetProfile:
    """Python 3.11."""

    def __init__(self, is_target: Callable[[FrameType], bool], entered: Callable[[], None]) -> None:
        self._is_target = is_target
        self._entered = entered
        self._installed = False
        self._restore: Callable[[], None] | None = None

    def install(self) -> None:
        if sys.getprofile() is None:
            self._installed = True
            sys.setprofile(self._event)
            if threading.getprofile() is None:
                # A server may answer each request on a thread of its own.
                threading.setprofile(self._event)

    def uninstall(self) -> None:
        if self._installed:
            self._look_away()
        if self._restore is not None:
            self._restore()
            self._restore = None

    def _look_away(self) -> None:
        self._installed = False
        sys.setprofile(None)
        if threading.getprofile() == self._event:
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._installed:
            # It was found on another thread.
            sys.setprofile(None)
        elif event == "call" and self._is_target(frame):
            self._restore = _wrap(frame, self._entered)
            if self._restore is not None:
                self._look_away()
            self._entered()


def _wrap(frame: FrameType, entered: Callable[[], None]) -> Callable[[], None] | None:
    """Puts a wrapper where the function that `frame` runs is kept; returns what undoes it, None for a local one."""
    *path, name = frame.f_code.co_qualname.split(".")
    owner: Any = frame.f_globals
    for part in path:
        owner = owner.get(part) if isinstance(owner, dict) else getattr(owner, part, None)
    namespace: Any = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
    original = namespace.get(name)
    if not isinstance(original, FunctionType) or original.__code__ is not frame.f_code:
        return None

    @functools.wraps(original)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        entered()
        return original(*args, **kwargs)

    def put(value: Any) -> None:
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)

    def restore() -> None:
        if namespace.get(name) is stepping:
            put(original)

    put(stepping)
    return restore
