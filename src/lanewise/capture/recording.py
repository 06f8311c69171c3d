"""One recording from the moment torch is loaded to the trace on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lanewise._version import __version__
from lanewise.capture import machine
from lanewise.capture.accelerator import Device, current_device
from lanewise.capture.boundaries.annotation import StepAnnotation
from lanewise.capture.boundaries.finder import StepFinder
from lanewise.capture.boundaries.functions import FunctionSteps
from lanewise.capture.boundaries.import_hooks import ImportWatch
from lanewise.capture.file import event_counts
from lanewise.capture.file.free_memory import free_memory
from lanewise.capture.file.save import discard, free_path, is_whole, rank_suffix, rewrite_facts, write_trace
from lanewise.capture.file.size import TraceSize
from lanewise.capture.graphs.graph_captures import GraphCaptures
from lanewise.capture.on_demand.found_elsewhere import FoundElsewhere
from lanewise.capture.profiling import faults
from lanewise.capture.profiling.fork_safety import end_without_destructors
from lanewise.capture.profiling.own_profiler import OwnProfiler
from lanewise.capture.profiling.profiler import Flags, Session, has_rows, profiler_is_running
from lanewise.capture.profiling.unseen import Unseen
from lanewise.capture.schedule import Plan
from lanewise.capture.timing.energy import open_meter
from lanewise.capture.timing.watchdog import Watchdog
from lanewise.capture.timing.yardstick import ASKS_FOR_PACE, Yardstick
from lanewise.capture.window import Phase, Window
from lanewise.errors import LanewiseError
from lanewise.trace.metadata import Fault, Recorded, to_json

_LEAST_FREE = 4_000_000
"""Bytes that a disk must have left, whatever is predicted."""

__all__ = ["Options", "Recording", "StopProgram"]


class StopProgram(SystemExit):
    """Ends the program where it is once recording is over (`--stop`): `finally` blocks and exit handlers still run."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user may choose.

    Attributes:
        plan: steps of each kind. flags: what to record. out: folder for the trace. name: first part of its file name.
        whole: record from the first torch import on, without looking for steps. step_on: function that begins a step.
        stop: end the program when recording is over. redact: leave the command line out. command: that command line.
        graphs: note where in the program CUDA graphs are captured.
    """

    plan: Plan = field(default_factory=Plan)
    flags: Flags = field(default_factory=Flags)
    out: Path = Path("lanewise-out")
    name: str = "trace"
    whole: bool = False
    step_on: str | None = None
    stop: bool = False
    graphs: bool = False
    redact: bool = False
    command: tuple[str, ...] = ()


class Recording:
    """Records the program that it runs inside. Exceptions of its own end the recording, never the program.

    Args:
        log: is told what happens. saved: is told of the trace.
        steps_from: a finder that finds the steps already, for one whose owner calls `step`.

    Attributes:
        trace: the file, once written. facts: what is known about it. window: how far recording got.
    """

    def __init__(
        self,
        options: Options,
        log: Callable[[str], None] = lambda _: None,
        saved: Callable[[Path], None] = lambda _: None,
        steps_from: StepFinder | None = None,
    ) -> None:
        # The program may change its working directory.
        self.options = replace(options, out=options.out.absolute())
        self._from = os.getcwd()
        self.trace: Path | None = None
        self.facts: Recorded | None = None
        self.problem = ""
        self.window = self._make_window(self._plan_that_fits())
        self.finder = (
            StepFinder(self.window, self._failed)
            if steps_from is None
            else FoundElsewhere(steps_from, self.window, self._failed)
        )
        self._log = log
        self._saved = saved
        self._session: Session | None = None
        self._raw: Path | None = None
        self._first_part = 0
        self._unseen = Unseen()
        self._process = os.getpid()
        self._begun = time.perf_counter()
        self._finished = False
        self._ending = False
        self._faults: list[Fault] = []
        self._aside = False
        self._again = False
        self._own = OwnProfiler(self.finder.found, self._step_aside)
        self._graphs = GraphCaptures(lambda: self.window.recording, log)
        self._watchdog = Watchdog(self.window.over_limit, self.window.cut)
        self._watch = ImportWatch("torch", self._torch_is_ready)

    # -- called by script and recorder ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for steps, now or as soon as the program imports torch."""
        this = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: recording._forked() if (recording := this()) else None)
        self._watch.install()

    def step(self) -> None:
        """The program says that a step ended."""
        if not self._finished:
            self.finder.call()

    def finish(self, reason: str = "program ended") -> None:
        """Stop, save what there is and remove everything; safe to call twice."""
        if self._finished or os.getpid() != self._process:
            return
        self._ending = True
        self._watch.uninstall()
        try:
            self.window.finish(reason)
        except Exception as error:
            self._failed(error)
        self._save()
        if self._aside and self.trace is None:
            try:
                self._take_theirs()
            except Exception as error:
                self._failed(error)
            if self.trace is None and not self.problem:
                self.problem = "nothing was recorded: the program's own profiler kept no rows"
                self._log(self.problem)
        self._finished = True
        self._watchdog.stop()
        self._own.uninstall()
        self._graphs.no_more()
        self._graphs.uninstall()
        self.finder.uninstall()
        self.finder.remove_late()

    def add_unseen(self) -> list[Fault]:
        """When the program, or what it wanted recorded, has ended: what no recording of it shows, added to the trace where
        there is one. Safe to call twice."""
        nothing = self.facts is None
        all_threads = nothing or (self._session is not None and self._session.flags.all_threads)
        found = self._unseen.faults(all_threads=all_threads)
        if found and self.facts is not None and self.trace is not None and not self.problem and not self._aside:
            # Children, or other threads, are where the work is, if none was here.
            told = {"nothing-recorded", *(fault.code for fault in found)}
            known = [fault for fault in self.facts.faults if fault.code not in told]
            self.facts = replace(self.facts, faults=[*known, *found])
            try:
                self._first_part = rewrite_facts(self.trace, to_json(self.facts), self._first_part)
            except LanewiseError as error:
                self._log(str(error))
        return found

    # -- the course ----------------------------------------------------------------------------------------------

    def _torch_is_ready(self) -> None:
        try:
            self._own.install()
            if self.options.whole:
                self.window.begin_whole()
                return
            if self.options.graphs:
                self._graphs.install()
            target = self.options.step_on
            self.finder.install([lambda found: FunctionSteps(found, target)] if target else [])
        except Exception as error:
            self._failed(error)

    def _make_window(self, plan: Plan) -> Window:
        return Window(
            plan,
            profiler=self._attach,
            device=current_device,
            annotation=StepAnnotation(),
            recorded=self._recorded,
            done=self._done,
            meter=open_meter,
            pace=_pace,
        )

    def _attach(self, device: Device, all_threads: bool) -> tuple[Session, TraceSize]:
        if profiler_is_running():
            raise LanewiseError("another torch profiler is recording in this process")
        self._watchdog = Watchdog(self.window.over_limit, self.window.cut)
        self._watchdog.start()
        self._graphs.no_more()
        flags = replace(self.options.flags, all_threads=self.options.flags.all_threads or all_threads)
        self._session = Session(flags, device.name)
        self._unseen.recording_begins()
        return self._session, TraceSize(flags)

    def _recorded(self, more: bool) -> bool:
        """Recording has stopped: bring the rows to disk before anything else happens to the process.

        Answers whether to record once more, if that can be: it cures the loss of device records at the start of a first
        session.
        """
        self._unseen.recording_ended()  # while the watchdog's thread is known as ours
        self._watchdog.stop()
        session = self._session
        if session is None:
            return False
        self._raw = self._export(session)
        found = event_counts.scan(self._raw)
        self._faults = faults.find(found, session.flags, session.messages, session.missing)
        if more and faults.worth_a_retry(self._faults) and not self._again:
            self._log(f"{self._faults[0].sentence}; recording once more")
            self._again = True
            self._raw.unlink(missing_ok=True)
            self._raw = None
            return True
        if self._again:
            self._faults.append(Fault(code="recorded-again", sentence="the first recording lost device records"))
        self.facts = self._describe(session)
        steps = self.window.measured.active
        count = f"{steps} step{'' if steps == 1 else 's'}" if steps else "no complete step"
        if self.options.whole:
            cut = self.window.measured.stopped_by == "size"
            # What other threads and processes did is not in it, and said below.
            seen = (
                "what one thread did" if self._unseen.faults(all_threads=session.flags.all_threads) else "all there is"
            )
            count = "the beginning, up to --max-size, without steps" if cut else f"{seen}, without steps"
        self._log(f"recorded {count}, {found.size / 1e6:.1f} MB")
        # At once: the program may be killed, or end by os._exit, before it ends.
        self._save()
        return False

    def _done(self) -> None:
        """Recording is over: leave the program alone, and end it if that was asked for."""
        self.finder.uninstall()
        self._graphs.uninstall()
        self._add_energy()
        if not self._aside:
            self._own.uninstall()
        self._save()
        if self.options.stop and not self._ending:
            raise StopProgram

    def _add_energy(self) -> None:
        energy = self.window.measured.energy
        if energy is not None and self.facts is not None and self.trace is not None and not self.problem:
            self.facts = replace(self.facts, energy=energy)
            try:
                self._first_part = rewrite_facts(self.trace, to_json(self.facts), self._first_part)
            except LanewiseError as error:
                self._log(str(error))

    def _step_aside(self) -> None:
        """The program starts a profiler of its own: keep what there is, and let it have the process."""
        if self.window.phase is Phase.METERED:
            self.window.finish("profiler")
            return
        if not self._aside:
            self._log("the program profiles itself: its own recording is explained instead")
        self._aside = True
        try:
            self.window.finish("profiler")
        except Exception as error:
            self._failed(error)

    def _take_theirs(self) -> None:
        """The trace of the program's own profiler: the file that it wrote, or its rows if it wrote none."""
        if (written := self._own.exported) is not None:
            self.trace = written
            self._log(f"trace in {self.shown}")
            return
        theirs = self._own.unexported
        if theirs is None or not has_rows(theirs):
            return
        self._raw = self._make_raw()
        theirs.export_chrome_trace(str(self._raw))
        measured = self.window.measured
        self.facts = Recorded(
            lanewise=__version__,
            unprofiled=measured.unprofiled,
            unprofiled_step_us=measured.unprofiled.median_us if measured.unprofiled else None,
            yardstick_us=measured.yardstick_us,
            step_source="profiler",
            stopped_by="profiler",
            command=self._command(),
            environment=machine.describe(),
        )
        self._save()

    def _export(self, session: Session) -> Path:
        raw = self._make_raw()
        try:
            session.export(str(raw))
        except Exception:
            discard(raw)
            raise
        if not is_whole(raw):
            # An export cannot be repeated: the profiler has let go of the rows.
            discard(raw)
            raise LanewiseError(f"no trace: the disk under {raw.parent} is full")
        return raw

    def _make_raw(self) -> Path:
        """An empty file beside the final one, or in the temporary folder where that cannot be or has no room."""
        last: OSError | None = None
        needed = _LEAST_FREE + 2 * self.window.predicted_bytes
        for folder in (self.options.out, Path(tempfile.gettempdir())):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if shutil.disk_usage(folder).free < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                handle, name = tempfile.mkstemp(prefix=".recording-", suffix=".json", dir=folder)
                os.close(handle)
            except OSError as error:
                last = error
                continue
            if folder != self.options.out:
                self._log(
                    f"cannot write to {self.options.out} ({last.strerror if last else ''}): the trace goes to {folder}"
                )
            return Path(name)
        reason = last.strerror if last is not None else ""
        raise LanewiseError(f"cannot write the trace to {self.options.out} or the temporary folder: {reason}")

    def _save(self) -> None:
        """Bring the trace to disk, with what is known of it."""
        raw, self._raw = self._raw, None
        if self.facts is None or raw is None:
            return
        try:
            stem = f"{self.options.name}{rank_suffix(os.environ)}"
            folder = self.options.out if raw.parent == self.options.out else raw.parent
            final = free_path(folder, stem, ".json.gz")
            self._first_part = write_trace(raw, final, to_json(self.facts), unfinished=self.window.measured.unfinished)
            self.trace = final
            self._log(f"trace in {self.shown}")
            self._saved(final)
            raw.unlink(missing_ok=True)
        except LanewiseError as error:
            # The uncompressed export is still there: better a trace without our facts than none.
            self.problem = f"{error}; the uncompressed trace is {raw}"
            self.trace = raw
            self._log(self.problem)

    @property
    def shown(self) -> str:
        """The trace as one would write it where the command was given."""
        try:
            relative = os.path.relpath(self.trace or "", self._from)
        except (ValueError, OSError):  # on another drive; the program's folder is gone
            relative = ".."
        return str(self.trace) if relative.startswith("..") else relative

    def _describe(self, session: Session) -> Recorded:
        measured = self.window.measured
        low, high = measured.interval or (None, None)
        distortion = measured.distortion
        return Recorded(
            lanewise=__version__,
            unprofiled_step_us=measured.unprofiled.median_us if measured.unprofiled else None,
            unprofiled=measured.unprofiled,
            yardstick_us=measured.yardstick_us,
            profiled=measured.profiled,
            distortion=round(distortion, 4) if distortion else None,
            distortion_low=round(low, 4) if low else None,
            distortion_high=round(high, 4) if high else None,
            step_source=self.finder.source,
            step_label=self.finder.label,
            steps_before=measured.steps_before,
            warmup=self.options.plan.warmup,
            active=measured.active,
            settled_after=measured.settled_after,
            stopped_by=measured.stopped_by,
            flags=session.flags.as_dict(),
            costs_ms=session.costs_ms,
            command=self._command(),
            rank=_number("RANK"),
            world_size=_number("WORLD_SIZE"),
            node=_number("GROUP_RANK"),
            environment=machine.describe(),
            graphs=self._graphs.facts(),
            modules=self.finder.modules(),
            faults=self._faults,
        )

    def _command(self) -> list[str]:
        return [] if self.options.redact else machine.command_line(list(self.options.command))

    def _plan_that_fits(self) -> Plan:
        """The plan with a trace that fits: at most a quarter of what the disk has left, before compression, and an
        eighth of the memory, of which torch takes six times the trace's size when it stops; of a rank of several, in step
        with the others."""
        plan = self.options.plan.in_step() if (_number("WORLD_SIZE") or 1) > 1 else self.options.plan
        folder = self.options.out
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        most = plan.trace_bytes
        with contextlib.suppress(OSError):
            most = min(most, shutil.disk_usage(folder).free // 4)
        if (memory := free_memory()) is not None:
            most = min(most, memory // 8)
        return replace(plan, trace_bytes=most)

    def _failed(self, error: BaseException) -> None:
        """Our own code failed: say so once, let go of the program."""
        if not self.problem:
            # What the user can cause reads as a sentence; a fault of ours keeps its name.
            told = str(error) if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
            self.problem = f"recording stopped: {told}"
            self._log(self.problem)
            if os.environ.get("LANEWISE_DEBUG"):
                sys.excepthook(type(error), error, error.__traceback__)
        if self._session is not None:
            self._session.abandon()
        self.window.disable()
        self._graphs.uninstall()
        self.finder.uninstall()

    def _forked(self) -> None:
        """In a forked child nothing is recorded, and nothing of ours may act."""
        with contextlib.suppress(Exception):
            if self._session is not None:
                end_without_destructors()
            self._finished = True
            self._watch.uninstall()
            self._graphs.forked()
            self._graphs.uninstall()
            self.window.disable()
            self._watchdog.stop()
            self._own.uninstall()
            self.finder.uninstall()
            self.finder.remove_late()


def _pace() -> float:
    """How fast the host is, where that is asked for: `lanewise sweep` compares what was recorded at several moments."""
    if not os.environ.get(ASKS_FOR_PACE):
        return 0.0
    try:
        return Yardstick().us()
    except Exception:
        return 0.0


def _number(name: str) -> int | None:
    value: Any = os.environ.get(name, "")
    return int(value) if value.isdigit() else None
