"""Processes that are made ready at once and then work one at a time, when told.

To start a process and its device takes seconds, in which nothing is measured, and how fast a process is differs from one to
the next and from second to second. So all processes of a comparison are forked from one that has imported torch, get ready
side by side, and wait; then each measures for a moment in turn, again and again. Drift hits all of them alike.

The forking process must have touched no device. A process that fails or is late is let go; the others go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Answer", "Crew", "Make"]

Answer = dict[str, Any]
"""What a process answers: anything JSON can say, or `{"error": ...}`."""

Make = Callable[[], Callable[..., Answer]]
"""Runs in the new process: gets it ready and returns the function that answers each request's keywords."""


class Crew:
    """Processes by name, used as a context manager.

    Args:
        makes: how each gets ready. seconds: how long getting ready may take; who is late is let go.

    Attributes:
        lost: why, by name, for those that are gone.
    """

    def __init__(self, makes: dict[str, Make], *, seconds: float) -> None:
        self.lost: dict[str, str] = {}
        self._members: dict[str, _Member] = {}
        for name, make in makes.items():
            self._members[name] = _fork(make, list(self._members.values()))
        until = time.monotonic() + seconds
        for name in list(self._members):
            self._take(name, until)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._members):
            self._let_go(name, "")

    @property
    def names(self) -> list[str]:
        """Who is there."""
        return list(self._members)

    def ask(self, name: str, *, late: float, **request: Any) -> Answer:
        """The answer of one process, while all others wait; it is let go where there is none after `late` seconds."""
        return self.ask_all([name], late=late, **request)[name]

    def ask_all(self, names: Sequence[str], *, late: float, **request: Any) -> dict[str, Answer]:
        """The answers of several at the same time."""
        answers: dict[str, Answer] = {name: {"error": self.lost.get(name, "unknown")} for name in names}
        there = [name for name in names if name in self._members]
        for name in there:
            with contextlib.suppress(OSError):
                os.write(self._members[name].writing, json.dumps(request).encode() + b"\n")
        until = time.monotonic() + late
        return answers | {name: self._take(name, until) for name in there}

    def _take(self, name: str, until: float) -> Answer:
        line = self._members[name].line(until)
        answer: Answer = json.loads(line) if line else {"error": "late" if line is None else "ended"}
        if "error" in answer:
            self._let_go(name, answer["error"])
        return answer

    def _let_go(self, name: str, why: str) -> None:
        member = self._members.pop(name)
        if why:
            self.lost[name] = why
        for end in (member.reading, member.writing):
            os.close(end)
        with contextlib.suppress(OSError):
            os.kill(member.process, signal.SIGKILL)
        os.waitpid(member.process, 0)


class _Member:
    def __init__(self, process: int, reading: int, writing: int) -> None:
        self.process, self.reading, self.writing = process, reading, writing
        self._rest = b""

    def line(self, until: float) -> str | None:
        """The next line; "" if there will be none, None if it is not there in time."""
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.reading], [], [], left)[0]:
                return None
            part = os.read(self.reading, 1 << 20)
            if not part:
                return ""
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()


def _fork(make: Make, others: list[_Member]) -> _Member:
    sys.stdout.flush()
    sys.stderr.flush()
    asked, asking = os.pipe()
    hearing, telling = os.pipe()
    child = os.fork()
    if child == 0:
        for end in (asking, hearing, *(end for other in others for end in (other.reading, other.writing))):
            os.close(end)
        _serve(make, asked, telling)
    os.close(asked)
    os.close(telling)
    return _Member(child, hearing, asking)


def _serve(make: Make, asked: int, telling: int) -> None:
    """In the child: never returns."""

    def tell(answer: Answer) -> None:
        rest = json.dumps(answer).encode() + b"\n"
        while rest:
            rest = rest[os.write(telling, rest) :]

    try:
        answer = make()
        tell({})
        for line in os.fdopen(asked, "rb"):
            tell(answer(**json.loads(line)))
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            tell({"error": f"{type(error).__name__}: {error}"[:500]})
    sys.stderr.flush()
    # What other libraries do at the end of a process is not measured.
    os._exit(0)
