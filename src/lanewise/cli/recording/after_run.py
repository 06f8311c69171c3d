"""What `lanewise run` does when the program has ended: the report, and what to run next.

Reading and explaining happen in a process of their own. The program's process may hold gigabytes, is on its way out,
and must not have our packages imported into it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.capture.say import STDERR, STDOUT, is_as_it_was, say
from lanewise.search import installed_first

if TYPE_CHECKING:
    from lanewise.capture.recording import Recording

__all__ = ["Afterwards", "how_it_ended", "main", "start"]


_MAIN = """
import sys; sys.path[:] = {search!r}
from lanewise.cli.recording.after_run import main
main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]) if len(sys.argv) > 4 else None)
"""
"""The report is made with the modules that were there before the program, whatever lies in its folder."""


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

    recording = Recording(options, log=log)
    Afterwards(recording, explain=order["explain"], as_json=order["as_json"], log=log).register()
    recording.start()


def how_it_ended() -> str:
    """`program ended`, or `exception` or `interrupt` where Python has shown the traceback of one."""
    error = getattr(sys, "last_value", None)
    return "program ended" if error is None else "interrupt" if isinstance(error, KeyboardInterrupt) else "exception"


class Afterwards:
    """Ends the recording and prints the report at the very end of the process, after the program's own exit handlers."""

    def __init__(self, recording: Recording, *, explain: bool, as_json: bool, log: Callable[[str], None]) -> None:
        self._recording = recording
        self._explain = explain
        self._as_json = as_json
        self._log = log
        self._process = os.getpid()
        # The program may go elsewhere; the project is where the command was given.
        self._project = os.getcwd()
        # This lanewise first, wherever it came from.
        self._search = [str(Path(__file__).resolve().parents[3]), *installed_first()]

    def register(self) -> None:
        """Run when the process ends: registered before the program's own handlers, and so called after them."""
        atexit.register(self._run)

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
        if nothing:
            return
        if self._explain and os.environ.get("RANK", "0") == "0":
            self._print_report()
        if not self._explain:
            self._log(f"next: lanewise explain {shlex.quote(self._recording.shown)}")

    def _print_report(self) -> None:
        words = [
            sys.executable,
            "-I",
            "-c",
            _MAIN.format(search=self._search),
            self._recording.shown,
            "json" if self._as_json else "text",
            self._project,
        ]
        unprofiled = self._recording.window.measured.unprofiled
        if unprofiled is not None:
            words.append(str(unprofiled.median_us))
        # The streams may be the program's files by now.
        report = STDOUT if self._as_json else STDERR
        try:
            subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=report if is_as_it_was(report) else subprocess.DEVNULL,
                stderr=STDERR if is_as_it_was(STDERR) else subprocess.DEVNULL,
                cwd=self._project,
                check=False,
            )
        except (OSError, ValueError) as error:
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


def main(path: str, form: str, project: str, unprofiled_us: float | None) -> None:
    """Explain the trace at `path` by the settings of the project in a folder or above: its data beside the trace, the
    report on standard output (`text` or `json`)."""
    from lanewise.cli.common import console, project_settings
    from lanewise.cli.plain import replace_what_cannot_be_encoded
    from lanewise.diagnose.explain import explain
    from lanewise.errors import LanewiseError
    from lanewise.show.report.json import report_json
    from lanewise.show.report.one_screen import print_one_screen
    from lanewise.trace.reader import read

    replace_what_cannot_be_encoded()
    try:
        settings = project_settings(start=Path(project))
        trace = read(path)
        # What was timed is a step; a recording in which none ended has no use for it.
        timed = unprofiled_us if trace.steps.recorded else None
        report = explain(trace, unprofiled_us=timed, settings=settings)
    except LanewiseError as error:
        sys.exit(f"lanewise: cannot explain the trace: {error}")
    data = report_json(report)
    target = Path(path.removesuffix(".gz").removesuffix(".json") + ".report.json")
    try:
        target.write_text(data, encoding="utf-8")
    except OSError as error:
        print(f"lanewise: cannot write {target.name}: {error.strerror}", file=sys.stderr)
    if form == "json":
        print(data)
    else:
        print()
        print_one_screen(report, console())
