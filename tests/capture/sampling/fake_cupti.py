"""A CUPTI that answers with samples that a card has given, or refuses."""

from __future__ import annotations

import ctypes
import threading
import zlib
from typing import Any

from lanewise.capture.sampling import pc_sampler

AT_A_TIME = 7
"""Instructions that it hands out at a time."""
_SAID = {
    8: b"CUPTI_ERROR_OUT_OF_MEMORY",
    15: b"CUPTI_ERROR_NOT_INITIALIZED",
    35: b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
}

Recorded = dict[tuple[str, int], dict[str, int]]
"""Samples by reason, by function and offset."""


class FakeCupti:
    """Every fetch has the same samples. `refuses`: codes by the end of a function's name. `fetched`: counts fetches.

    `silent`: the end of the name of a function that does not answer before `answers` is set. `threads`: who called what.
    """

    def __init__(self, recorded: Recorded, refuses: dict[str, int] | None = None, silent: str = "") -> None:
        self.recorded, self.refuses = recorded, refuses or {}
        self.reasons = sorted({reason for of in recorded.values() for reason in of})
        self.called: list[str] = []
        self.attributes: dict[int, int] = {}
        self.fetched = threading.Semaphore(0)
        self.silent, self.answers = silent, threading.Event()
        self.threads: dict[str, threading.Thread] = {}
        self._names = {function: function.encode() for function, _ in recorded}
        self._answers = {
            "GetNumStallReasons": self._count,
            "GetStallReasons": self._name,
            "SetConfigurationAttribute": self._configure,
            "GetData": self._data,
        }
        self._left: list[tuple[tuple[str, int], dict[str, int]]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "cuptiGetResultString":
            return self._result_string
        if name == "cuptiGetCubinCrc":
            return self._cubin_crc
        if not name.startswith("cuptiPCSampling"):
            raise AttributeError(name)
        verb = name.removeprefix("cuptiPCSampling")

        def call(reference: Any) -> int:
            self.called.append(verb)
            self.threads[verb] = threading.current_thread()
            if verb == self.silent:
                self.answers.wait()
            if verb not in self.refuses and verb in self._answers:
                self._answers[verb](reference._obj)
            return self.refuses.get(verb, 0)

        return call

    def _result_string(self, code: int, reference: Any) -> int:
        reference._obj.value = _SAID[code]
        return 0

    def _cubin_crc(self, reference: Any) -> int:
        reference._obj.crc = zlib.crc32(reference._obj.cubin)
        return 0

    def _count(self, words: Any) -> None:
        words.number.contents.value = len(self.reasons)

    def _name(self, words: Any) -> None:
        buffers = ctypes.cast(words.names, ctypes.POINTER(ctypes.c_void_p))
        for at, name in enumerate(self.reasons):
            words.index[at] = at + 3
            ctypes.memmove(buffers[at], name.encode() + b"\0", len(name) + 1)

    def _configure(self, words: Any) -> None:
        self.attributes = {one.type: one.data[0] for one in words.attributes[: words.number]}

    def _data(self, words: Any) -> None:
        data = ctypes.cast(words.data, ctypes.POINTER(pc_sampler.Data)).contents
        left = self._left or list(self.recorded.items())
        now, self._left = left[:AT_A_TIME], left[AT_A_TIME:]
        data.number, data.remaining, data.dropped = len(now), len(self._left), 1
        for at, ((function, offset), reasons) in enumerate(now):
            pc, name = data.pcs[at], self._names[function]
            pc.crc, pc.function, pc.offset, pc.number = zlib.crc32(name), name, offset, len(reasons)
            for which, (reason, number) in enumerate(reasons.items()):
                pc.reasons[which].index, pc.reasons[which].samples = self.reasons.index(reason) + 3, number
        if not self._left:
            self.fetched.release()
