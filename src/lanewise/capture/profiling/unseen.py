"""What of a program no recording of this process shows: child processes and other threads.

None of it is touched: the system's own accounts of CPU time tell. A sentence is made only where it is much.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time

from lanewise.trace.metadata import Fault

__all__ = ["Unseen", "other_threads_s"]

_EXIT_S = 0.003
_CHILDREN_S, _THREADS_S = 0.2, 0.02
_SHARE = 0.1
"""Less CPU time than that, or than this share of what was recorded beside it, is not worth a sentence."""


class Unseen:
    """Told of the course of a recording; from its creation on, which is before the program begins."""

    def __init__(self) -> None:
        self._children = _children_s()
        self._made = _processes_made()
        self._begun: tuple[float, float] | None = None
        self._threads = (0.0, 0.0)

    def recording_begins(self) -> None:
        """On the thread that is recorded."""
        self._begun = time.thread_time(), other_threads_s()

    def recording_ended(self) -> None:
        """On the same thread."""
        if self._begun is not None:
            here, others = self._begun
            spent = time.thread_time() - here
            # A thread that was joined just now may still be on the system's list, as one of no Python's.
            first = other_threads_s()
            time.sleep(_EXIT_S)
            self._threads = spent, max(first, other_threads_s()) - others
            self._begun = None

    def faults(self, *, all_threads: bool) -> list[Fault]:
        """What was not seen, at the end of the process; of threads nothing where operators of all of them were recorded."""
        found = {"child-processes": self._of_children(), "other-threads": "" if all_threads else self._of_threads()}
        return [Fault(code=code, sentence=said) for code, said in found.items() if said]

    def _of_children(self) -> str:
        spent, own = _children_s() - self._children, time.process_time()
        if spent < _CHILDREN_S or spent < _SHARE * own:
            return ""
        made = _processes_made() - self._made
        who = f"{made} child process{'es' if made > 1 else ''}" if made > 0 else "child processes"
        return (
            f"{who} ran ({spent:.1f} s of CPU time, this process {own:.1f} s) and what they did was not recorded; to see "
            "it, call lanewise.record() in the function that they run"
        )

    def _of_threads(self) -> str:
        here, others = self._threads
        if others < _THREADS_S or others < _SHARE * here:
            return ""
        return (
            f"other threads used {others:.2f} s of CPU time during the recording, the recorded one {here:.2f} s: their "
            "operators are missing; --all-threads records them"
        )


def _children_s() -> float:
    """CPU time of this process's children, theirs included: of those that have ended and been waited for, and on Linux of
    those that still run; 0 where the system keeps none."""
    used = os.times()
    return used.children_user + used.children_system + sum(map(_process_s, _running_children()))


def _running_children() -> list[int]:
    """Numbers of the processes that this one has started and that still run; none where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as listed:
                found += map(int, listed.read().split())
    return found


def _process_s(process: int) -> float:
    """CPU time of a process and of the children that it has waited for; 0 if it has gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


_COUNT = re.compile(r"count\((\d+)\)")


def _processes_made() -> int:
    """Processes that `multiprocessing` has made so far; 0 where it is not loaded or does not count as expected."""
    counter = getattr(sys.modules.get("multiprocessing.process"), "_process_counter", None)
    found = _COUNT.fullmatch(repr(counter))
    return int(found[1]) - 1 if found else 0


def other_threads_s() -> float:
    """CPU time of this process beside that of the calling thread, our own, and the pools of operators; 0 if unknown.

    What the process used and no thread that is left did was used by threads that have ended.
    """
    others = {t.native_id for t in threading.enumerate() if t.name != "lanewise"} - {threading.get_native_id()}
    used = time.process_time()
    try:
        for thread in os.listdir("/proc/self/task"):
            if int(thread) not in others:
                # The clock of any thread of this process by its number, as pthread_getcpuclockid makes it on Linux.
                used -= time.clock_gettime(~int(thread) << 3 | 6)
    except (OSError, ValueError):
        return 0.0
    return used
