"""`record`: one object that records as a context manager, as a decorator, and as torch.profiler's `on_trace_ready`.

    with lanewise.record() as recorder:
        for batch in loader:
            train_step(batch)
    print(recorder.explain().verdict)

Steps are found as `lanewise run` finds them; `recorder.step()` marks them by hand. `handler` is for programs and
frameworks that run torch's profiler themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from lanewise._version import __version__
from lanewise.capture import machine
from lanewise.capture.boundaries.wrapped import wrapped
from lanewise.capture.file import event_counts
from lanewise.capture.file.save import discard, free_path, is_whole, rank_suffix, write_trace
from lanewise.capture.profiling import faults, own_profiler
from lanewise.capture.profiling.profiler import Flags, has_rows
from lanewise.capture.recording import Options, Recording
from lanewise.capture.schedule import Plan
from lanewise.errors import LanewiseError, MissingDependencyError, UsageError
from lanewise.trace.metadata import Recorded, to_json

__all__ = ["Recorder", "handler", "record"]


class Recorder:
    """Records one stretch of a program. Made by `record`.

    Attributes:
        path: the trace file, once recording is over; None before, and if nothing could be recorded.
        recorded: what is known about the recording, None before.
        problem: why nothing was recorded, in one sentence; empty if all went well.
    """

    def __init__(self, options: Options) -> None:
        self.path: Path | None = None
        self.recorded: Recorded | None = None
        self.problem = ""
        self._options = options
        self._recording: Recording | None = None
        self._trace: Any = None

    # -- the three ways to use it ---------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.stop("interrupt" if interrupted else "exception" if kind is not None else "program ended")

    def __call__(self, target: Any) -> Any:
        """As a decorator: the function, recorded at its first call. As a handler: saves the trace of `target`."""
        if hasattr(target, "export_chrome_trace"):
            self._take(target)
            return None
        if not callable(target):
            raise UsageError("record() decorates a function, or takes a torch.profiler.profile as its handler")

        recorded = wrapped(target, lambda: self if self._recording is None else contextlib.nullcontext())
        recorded.recorder = self
        return recorded

    def start(self) -> None:
        """Begin to look for steps. Raises MissingDependencyError without torch, UsageError if already started."""
        if self._recording is not None:
            raise UsageError("this recorder has been used; make another with record()")
        _need_torch()
        self._recording = Recording(self._options)
        self._recording.start()

    def stop(self, reason: str = "program ended") -> None:
        """Stop and save; what the program does afterwards is not touched. Without `start`, does nothing."""
        recording = self._recording
        if recording is None:
            return
        recording.finish(reason)
        unseen = recording.add_unseen()
        self.path, self.recorded = recording.trace, recording.facts
        if self.path is None:
            self.problem = recording.problem or (
                f"nothing was recorded: it ended after {max(recording.window.steps, 0)} steps, before recording began "
                "(record(quick=True) needs 8 steps, record(whole=True) none)"
            )
            self.problem = "; ".join([self.problem, *(fault.sentence for fault in unseen)])

    def step(self) -> None:
        """A step ended here. From the first call on, only these calls count."""
        if self._recording is not None:
            self._recording.step()

    # -- what came of it ------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Any:
        """The recorded `Trace`, read on first use. Raises LanewiseError if nothing was recorded."""
        if self._trace is None:
            import lanewise

            path = self._saved()
            with contextlib.suppress(ValueError, OSError):  # as one would write it here: reports name it in commands
                path = path.relative_to(Path.cwd())
            self._trace = lanewise.read(path)
        return self._trace

    def explain(self, **options: Any) -> Any:
        """The `Report` on the recorded trace; options as for `lanewise.explain`."""
        import lanewise

        measured = self._recording.window.measured.unprofiled if self._recording is not None else None
        if measured is not None and self.trace.steps.recorded:
            # A trace that the program's own profiler wrote does not carry it. A step's time is nothing to compare a trace
            # without steps with.
            options.setdefault("unprofiled_us", measured.median_us)
        return lanewise.explain(self.trace, **options)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Copies the trace to `path` and returns it. Raises LanewiseError if it exists, without `force`."""
        target = Path(path)
        if target.exists() and not force:
            raise LanewiseError(f"{target} exists; save(..., force=True) overwrites it")
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(self._saved(), target))

    def _saved(self) -> Path:
        if self.path is None:
            raise LanewiseError(self.problem or "nothing has been recorded yet")
        return self.path

    def _take(self, profiler: Any) -> None:
        """The rows of a finished `torch.profiler.profile` cycle, with the machine record added.

        A disk that is full or read-only must not end the training that is profiled: it is a warning and `problem`.
        """
        try:
            self._take_cycle(profiler)
        except (LanewiseError, OSError) as error:
            self.problem = f"lanewise saved no trace: {error}"
            # Where warnings are errors, this one would end the training.
            with contextlib.suppress(Warning):
                warnings.warn(self.problem, stacklevel=3)

    def _take_cycle(self, profiler: Any) -> None:
        if not has_rows(profiler):
            raise LanewiseError("this profiler kept no rows: it never ran, or another one took its place")
        folder = self._options.out
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self._options.name}{rank_suffix(os.environ)}"
        final = free_path(folder, stem, ".json.gz")
        raw = folder / f".recording-{os.getpid()}-{threading.get_ident()}.json"
        # `step()` has counted on before it hands over, `stop()` has not: then this step was begun and not ended. Most
        # loops leave one that holds nothing.
        number = getattr(profiler, "step_num", None)
        open_step = number if isinstance(number, int) else None
        try:
            profiler.export_chrome_trace(str(raw))
            if not is_whole(raw):
                raise LanewiseError(f"the disk under {folder} is full")
            found = event_counts.scan(raw, unfinished=open_step)
            flags = Flags(
                shapes=bool(getattr(profiler, "record_shapes", False)),
                stacks=bool(getattr(profiler, "with_stack", False)),
                memory=bool(getattr(profiler, "profile_memory", False)),
            )
            recorded = Recorded(
                lanewise=__version__,
                step_source="profiler" if found.steps else "none",
                active=found.steps,
                steps_before=max(0, (open_step or 0) - found.steps),
                flags=flags.as_dict(),
                environment=machine.describe(),
                faults=faults.find(found, flags, [], []),
            )
            write_trace(raw, final, to_json(recorded), unfinished=open_step)
            self.path, self.recorded, self._trace = final, recorded, None
            own_profiler.announce(final)
        finally:
            discard(raw)


def record(
    target: Callable[..., Any] | None = None,
    *,
    out: str | os.PathLike[str] = "lanewise-out",
    name: str = "trace",
    stacks: bool = False,
    shapes: bool = True,
    memory: bool = False,
    active: int | None = None,
    quick: bool = False,
    whole: bool = False,
    step_on: str | None = None,
) -> Any:
    """Records a stretch of a program: `with record() as r:`, `@record`, or `profile(on_trace_ready=record())`.

    Args:
        target: the function, when used as `@record` without parentheses.
        out: folder of the trace file; an existing file is never overwritten.
        name: first part of the file's name; a rank is added in distributed jobs.
        stacks: record Python frames and modules: source lines in the report, at the price of host time.
        shapes: record operator shapes; many findings need them.
        memory: record allocator events.
        active: record exactly this many steps, instead of until the host times settle.
        quick: 8 steps in all are enough: 3 timed, 3 recorded. Host times will not have settled.
        whole: record all of it, steps or none, from the start; there is no un-profiled step time then.
        step_on: a step begins when this function is called: `train_step` of the script or `module:train_step`.

    Returns:
        A `Recorder`, or the decorated function when `target` is given.

    Raises:
        MissingDependencyError: torch is not installed (when recording starts).
    """
    plan = quick_plan() if quick else Plan()
    if active is not None:
        if active < 1:
            raise UsageError("active must be at least 1")
        plan = replace(plan, active_min=active, active_max=active)
    recorder = Recorder(
        Options(
            plan=plan,
            flags=Flags(shapes=shapes, stacks=stacks, memory=memory),
            out=Path(out),
            name=name,
            whole=whole,
            step_on=step_on,
        )
    )
    return recorder if target is None else recorder(target)


def handler(out: str | os.PathLike[str] = "lanewise-out", *, name: str = "trace") -> Recorder:
    """An `on_trace_ready` for torch.profiler and what is built on it (Accelerate, Lightning, HF Trainer).

    Every finished cycle is saved to `out` with the machine record added; `.path` and `.explain()` are of the latest.
    """
    return Recorder(Options(out=Path(out), name=name))


def quick_plan() -> Plan:
    """For programs with few steps."""
    return Plan(skip=1, timed_min=3, timed_max=3, warmup=1, active_min=3, active_max=3)


def _need_torch() -> None:
    import importlib.util

    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("recording needs torch, which is not installed here: pip install torch")
