"""What `lanewise run` does when the program has ended: the report, and what to run next.

Reading and explaining happen in a process of their own. The program's process may hold gigabytes, is on its way out,
and must not have our packages imported into it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.capture.job.held_signal import HeldSignal
from lanewise.capture.job.roll_call import roll_call
from lanewise.capture.say import STDERR, STDOUT, is_as_it_was, say
from lanewise.search import installed_first

if TYPE_CHECKING:
    from lanewise.capture.job.roll_call import Lost, RollCall
    from lanewise.capture.recording import Recording
    from lanewise.report.model import Report

__all__ = ["Afterwards", "explained_beside", "how_it_ended", "main", "print_report", "start", "write_beside"]


_MAIN = """
import sys; sys.path[:] = {search!r}
from lanewise.cli.recording.after_run import main
main(*sys.argv[1:])
"""
"""The report is made with the modules that were there before the program, whatever lies in its folder."""

_MAIN_OF_JOB = """
import sys; sys.path[:] = {search!r}
from lanewise.cli.recording.job_report import main
main(sys.argv[1])
"""

_PATIENCE_S = 60.0
"""The first rank waits so long for the others to end."""

_PATIENCE_AFTER_ERROR_S = 3.0
"""And so long after an exception of its own: they may wait for it in a collective, and the launcher ends them only once
this process has ended."""

_HURRIED_S = 20.0
"""What the report of a job may take once the launcher wants its rank to end."""


def start(order: dict[str, Any]) -> None:
    """Begins in the program's process, before its first line; `order` is what `lanewise run` was told."""
    from lanewise.capture.profiling.profiler import Flags
    from lanewise.capture.recording import Options, Recording
    from lanewise.capture.schedule import Plan

    options = Options(**order["options"])
    options = replace(
        options,
        plan=Plan(**order["options"]["plan"]),
        flags=Flags(**order["options"]["flags"]),
        out=Path(order["options"]["out"]),
        command=tuple(order["options"]["command"]),
    )

    def log(text: str) -> None:
        if not order["quiet"]:
            say(text)

    roll = roll_call(options.out.absolute(), os.environ)
    recording = Recording(options, log=log, saved=roll.wrote if roll is not None else lambda _: None)
    told = {name: order[name] for name in ("explain", "as_json", "price")}
    Afterwards(recording, roll, **told, log=log).register()
    if roll is None and sys.stderr is not None and sys.stderr.isatty():
        # Importing torch takes seconds, and so may the first steps: somebody waits.
        how = "all of it is recorded" if options.whole else "some of its steps are timed, then some recorded"
        log(f"running the program: {how}")
    recording.start()


def how_it_ended() -> str:
    """`program ended`, or `exception` or `interrupt` where Python has shown the traceback of one."""
    error = getattr(sys, "last_value", None)
    return "program ended" if error is None else "interrupt" if isinstance(error, KeyboardInterrupt) else "exception"


class Afterwards:
    """Ends the recording and prints the report at the very end of the process, after the program's own exit handlers."""

    def __init__(
        self,
        recording: Recording,
        roll: RollCall | None = None,
        *,
        explain: bool,
        as_json: bool,
        price: float | None,
        log: Callable[[str], None],
    ) -> None:
        self._recording = recording
        self._roll = roll
        self._explain = explain
        self._as_json = as_json
        self._price = price
        self._log = log
        self._process = os.getpid()
        # The program may go elsewhere; the project is where the command was given.
        self._project = os.getcwd()
        # This lanewise first, wherever it came from.
        self._search = [str(Path(__file__).resolve().parents[3]), *installed_first()]

    def register(self) -> None:
        """Run when the process ends: registered before the program's own handlers, and so called after them."""
        atexit.register(self._run)
        if self._roll is not None:
            self._roll.begin()

    def _run(self) -> None:
        # A second Ctrl-C ends ours, too, and in silence.
        with contextlib.suppress(Exception, KeyboardInterrupt):
            if os.getpid() == self._process:
                self._end()

    def _end(self) -> None:
        self._recording.finish(how_it_ended())
        for stream in (sys.stdout, sys.stderr):
            # Whatever the program has put there.
            with contextlib.suppress(Exception):
                stream.flush()
        unseen = self._recording.add_unseen()
        nothing = self._recording.trace is None
        if nothing:
            # A problem has been told when it arose.
            if not self._recording.problem:
                self._log(_why_nothing(self._recording, elsewhere=any(f.code == "child-processes" for f in unseen)))
        if nothing or not self._explain:
            for fault in unseen:  # where there is a report, it says so
                self._log(fault.sentence)
        if self._roll is not None:
            self._end_of_rank(self._roll)
            return
        if nothing:
            return
        if not self._explain:
            self._log(f"next: lanewise explain {shlex.quote(self._recording.shown)}")
        elif os.environ.get("RANK", "0") == "0":
            self._print_report()

    def _end_of_rank(self, roll: RollCall) -> None:
        """The first rank reports on all of them, the others say that they have ended."""
        if roll.rank != 0:
            roll.end(self._recording.trace)
            return
        mine = self._recording.trace
        if not self._explain:
            roll.close()
            if mine is not None:
                self._log(f"next: lanewise ranks {shlex.quote(os.path.dirname(self._recording.shown) or '.')}")
            return
        with HeldSignal(signal.SIGTERM) as held:
            failed = how_it_ended() == "exception"
            patience_s = _PATIENCE_AFTER_ERROR_S if failed else _PATIENCE_S
            others, lost = roll.wait(patience_s, self._log, lambda: held.asked)
            roll.close()
            traces = [str(path) for path in ([mine] if mine is not None else []) + others]
            if len(traces) > 1:
                self._print_job(traces, lost, _HURRIED_S if held.asked else None)
                return
            for rank in lost:
                self._log(f"rank {rank.rank} {rank.why}")
            if mine is not None:
                self._print_report()

    def _print_job(self, traces: list[str], lost: list[Lost], limit_s: float | None) -> None:
        order = {
            "traces": traces,
            "shown": self._recording.shown,
            "lost": [f"Rank {rank.rank} {rank.why}." for rank in lost],
            "form": "json" if self._as_json else "text",
            "project": self._project,
            "price": self._price,
        }
        self._in_a_process_of_its_own(_MAIN_OF_JOB, [json.dumps(order)], apart=True, limit_s=limit_s)

    def _print_report(self) -> None:
        words = [self._recording.shown, "json" if self._as_json else "text", self._project]
        unprofiled = self._recording.window.measured.unprofiled
        words += ["" if known is None else str(known) for known in (unprofiled and unprofiled.median_us, self._price)]
        self._in_a_process_of_its_own(_MAIN, words)

    def _in_a_process_of_its_own(
        self, program: str, words: list[str], *, apart: bool = False, limit_s: float | None = None
    ) -> None:
        """Run what makes a report; `apart`, what ends this process's group does not end it."""
        # The streams may be the program's files by now.
        report = STDOUT if self._as_json else STDERR
        try:
            subprocess.run(
                [sys.executable, "-I", "-c", program.format(search=self._search), *words],
                stdin=subprocess.DEVNULL,
                stdout=report if is_as_it_was(report) else subprocess.DEVNULL,
                stderr=STDERR if is_as_it_was(STDERR) else subprocess.DEVNULL,
                cwd=self._project,
                check=False,
                start_new_session=apart,
                timeout=limit_s,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            self._log(f"cannot explain: {error}")


def _why_nothing(recording: Recording, *, elsewhere: bool) -> str:
    steps = max(recording.window.steps, 0)
    if "torch" not in sys.modules:
        return "nothing was recorded: the program never imported torch"
    if steps == 0 and elsewhere:
        return "nothing was recorded: this process made no step"
    if steps == 0:
        return (
            "nothing was recorded: no step was found; name the function that makes one (--step-on FN), or use --whole"
        )
    ended = (
        f"nothing was recorded: the program ended after {steps} step{'' if steps == 1 else 's'}, before recording began"
    )
    if steps >= 8:
        return f"{ended}; with --quick it begins after the fifth"
    return f"{ended}; --whole records programs of any length"


def main(path: str, form: str, project: str, unprofiled_us: str, price: str) -> None:
    """Explain the trace at `path` by the settings of the project in a folder or above: its data beside the trace, the
    report on standard output (`text` or `json`). The step without the profiler, us, and the price of an hour are "" where
    they are not known."""
    from lanewise.cli.plain import as_shown
    from lanewise.errors import LanewiseError

    as_shown()
    try:
        timed, paid = (float(text) if text else None for text in (unprofiled_us, price))
        report = explained_beside(path, project, timed, price=paid)
    except LanewiseError as error:
        sys.exit(f"lanewise: cannot explain the trace: {error}")
    print_report(report, form)


def explained_beside(
    path: str, project: str, unprofiled_us: float | None = None, *, price: float | None = None
) -> Report:
    """The report on a trace by the settings of a project, written beside it. LanewiseError where it cannot be read."""
    from lanewise.cli.common import project_settings
    from lanewise.diagnose.explain import explain
    from lanewise.show.report.json import report_json
    from lanewise.trace.reader import read

    settings = project_settings(start=Path(project), price=price)
    trace = read(path)
    # What was timed is a step; a recording in which none ended has no use for it.
    timed = unprofiled_us if trace.steps.recorded else None
    report = explain(trace, unprofiled_us=timed, settings=settings)
    write_beside(path, ".report.json", report_json(report))
    return report


def write_beside(path: str, ending: str, data: str) -> None:
    """Write a file beside a trace, under its name with another ending; where that fails, say so."""
    target = Path(path.removesuffix(".gz").removesuffix(".json") + ending)
    try:
        target.write_text(data, encoding="utf-8")
    except OSError as error:
        print(f"lanewise: cannot write {target.name}: {error.strerror}", file=sys.stderr)


def print_report(report: Report, form: str) -> None:
    """Print a report on standard output, as `text` or `json`."""
    from lanewise.cli.common import console
    from lanewise.show.report.json import report_json
    from lanewise.show.report.one_screen import print_one_screen

    if form == "json":
        print(report_json(report))
    else:
        print()
        print_one_screen(report, console())
