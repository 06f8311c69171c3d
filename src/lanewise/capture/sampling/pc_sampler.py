"""CUPTI's sampling of instructions on one device context, by its C interface: what warps wait for, at which instruction.

It samples from when a `PcSampler` is made until it is closed; see `sampled_program` for why not in bursts. The structures
are those of `cupti_pcsampling.h` since CUDA 11.3; each begins with its size, which is how CUPTI knows which.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["PcSampler", "SamplingError", "Taken", "crc_of"]

_NAME = 128
_MOST_PCS = 4096
_MOST_FETCHES = 64
"""At a time: what a program runs faster than it can be fetched waits for the next time."""
_PERIOD, _SCRATCH, _MODE, _FORMAT, _BUFFER = 1, 3, 5, 7, 8
_SCRATCH_BYTES = 16 << 20
"""For some 90,000 instructions, between two fetches."""
_CONTINUOUS, _PARSED = 1, 1
_BUFFER_FULL = "CUPTI_ERROR_OUT_OF_MEMORY"
"""Of the card's samples: some are lost, as `dropped` says."""


class SamplingError(Exception):
    """CUPTI refuses; `code` is its name of the reason, such as `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"{function}: {code}")
        self.code = code


class _Enable(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("private", ctypes.c_void_p), ("context", ctypes.c_void_p))


class _Count(ctypes.Structure):
    _fields_ = (*_Enable._fields_, ("number", ctypes.POINTER(ctypes.c_size_t)))


class _Reasons(ctypes.Structure):
    _fields_ = (
        *_Enable._fields_,
        ("number", ctypes.c_size_t),
        ("index", ctypes.POINTER(ctypes.c_uint32)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
    )


class _Attribute(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("status", ctypes.c_int32), ("data", ctypes.c_uint64 * 3))


class _Configuration(ctypes.Structure):
    _fields_ = (*_Enable._fields_, ("number", ctypes.c_size_t), ("attributes", ctypes.POINTER(_Attribute)))


class _Reason(ctypes.Structure):
    _fields_ = (("index", ctypes.c_uint32), ("samples", ctypes.c_uint32))


class _Pc(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("crc", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("function_index", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("function", ctypes.c_char_p),
        ("number", ctypes.c_size_t),
        ("reasons", ctypes.POINTER(_Reason)),
        ("correlation", ctypes.c_uint32),
    )


class Data(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("asked", ctypes.c_size_t),
        ("samples", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("number", ctypes.c_size_t),
        ("remaining", ctypes.c_size_t),
        ("range", ctypes.c_uint64),
        ("pcs", ctypes.POINTER(_Pc)),
        ("others", ctypes.c_uint64),
        ("full", ctypes.c_uint8),
    )


class _GetData(ctypes.Structure):
    _fields_ = (*_Enable._fields_, ("data", ctypes.c_void_p))


class _Cubin(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("length", ctypes.c_size_t),
        ("cubin", ctypes.c_char_p),
        ("crc", ctypes.c_uint64),
    )


@dataclass(slots=True)
class Taken:
    """What was sampled.

    Attributes:
        counts: samples by (checksum of the cubin, function, offset in it in bytes, reason in NVIDIA's words).
        dropped: samples that were lost because a buffer was full.
    """

    counts: Counter[tuple[int, str, int, str]] = field(default_factory=Counter[tuple[int, str, int, str]])
    dropped: int = 0

    def add(self, other: Taken) -> None:
        """Put another one to it."""
        self.counts.update(other.counts)
        self.dropped += other.dropped


class _Room:
    """Where CUPTI puts samples, by instruction and reason."""

    def __init__(self, reasons: int) -> None:
        self._pcs = (_Pc * _MOST_PCS)()
        self._reasons = (_Reason * (_MOST_PCS * reasons))()
        step = reasons * ctypes.sizeof(_Reason)
        for at, pc in enumerate(self._pcs):
            pc.size = ctypes.sizeof(_Pc)
            pc.reasons = ctypes.cast(ctypes.addressof(self._reasons) + at * step, ctypes.POINTER(_Reason))
        self.data = Data(ctypes.sizeof(Data), _MOST_PCS)
        self.data.pcs = ctypes.cast(self._pcs, ctypes.POINTER(_Pc))

    def empty(self) -> None:
        """Forget what was in it."""
        data = self.data
        data.samples = data.dropped = data.number = data.remaining = data.others = 0


class PcSampler:
    """Samples a context from now on, every 2^`period` clocks of each multiprocessor. Kernels run as they would, side by
    side. It should be made on the thread that launches: CUPTI takes locks of its own and of the driver meanwhile.

    Args:
        cupti: the library that the process has loaded. context: of CUDA's driver.

    Raises:
        SamplingError: the machine does not allow it.
    """

    def __init__(self, cupti: Any, context: int, period: int) -> None:
        self._cupti, self._context = cupti, context
        self._call("Enable", self._words(_Enable))
        try:
            self._prepare(period)
        except SamplingError:
            with suppress(SamplingError):
                self._call("Disable", self._words(_Enable))
            raise

    def _prepare(self, period: int) -> None:
        number = ctypes.c_size_t()
        self._call("GetNumStallReasons", self._words(_Count, ctypes.pointer(number)))
        count = number.value
        index, buffers = (ctypes.c_uint32 * count)(), [ctypes.create_string_buffer(_NAME) for _ in range(count)]
        names = (ctypes.c_char_p * count)(*(ctypes.addressof(one) for one in buffers))
        self._call("GetStallReasons", self._words(_Reasons, count, index, names))
        self._names = {index[at]: buffers[at].value.decode(errors="replace") for at in range(count)}
        # CUPTI fills this one by itself when it is switched off; another one takes what is fetched.
        self._own = _Room(count)
        values = {
            _PERIOD: period,
            _MODE: _CONTINUOUS,
            _SCRATCH: _SCRATCH_BYTES,
            _FORMAT: _PARSED,
            _BUFFER: ctypes.addressof(self._own.data),
        }
        attributes = (_Attribute * len(values))(
            *(_Attribute(kind, 0, (ctypes.c_uint64 * 3)(value, 0, 0)) for kind, value in values.items())
        )
        self._call("SetConfigurationAttribute", self._words(_Configuration, len(values), attributes))

    @cached_property
    def _asked(self) -> _Room:
        return _Room(len(self._names))

    def fetch(self) -> Taken:
        """What was sampled since the last time. The program may launch meanwhile."""
        taken, room = Taken(), self._asked
        for _ in range(_MOST_FETCHES):
            self._call("GetData", self._words(_GetData, ctypes.addressof(room.data)), beside=_BUFFER_FULL)
            more = room.data.remaining > 0 and room.data.number > 0
            self._take(room, taken)
            if not more:
                break
        return taken

    def close(self) -> Taken:
        """Sample no more; what is left."""
        self._call("Disable", self._words(_Enable))
        taken = Taken()
        self._take(self._own, taken)
        return taken

    def _take(self, room: _Room, taken: Taken) -> None:
        taken.dropped += room.data.dropped
        for at in range(room.data.number):
            pc = room.data.pcs[at]
            name = (pc.function or b"?").decode(errors="replace")
            for which in range(pc.number):
                reason = self._names.get(pc.reasons[which].index, "?")
                taken.counts[pc.crc, name, pc.offset, reason] += pc.reasons[which].samples
        room.empty()

    def _words(self, kind: Any, *rest: Any) -> Any:
        return kind(ctypes.sizeof(kind), None, self._context, *rest)

    def _call(self, name: str, words: Any, beside: str = "") -> None:
        """Call it; raises what it refuses with, but for one name."""
        code = getattr(self._cupti, f"cuptiPCSampling{name}")(ctypes.byref(words))
        if code:
            said = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(code, ctypes.byref(said))
            why = (said.value or b"?").decode(errors="replace")
            if why != beside:
                raise SamplingError(name, why)


def crc_of(cupti: Any, cubin: bytes) -> int:
    """The checksum by which samples name a cubin; 0 if it is none."""
    words = _Cubin(ctypes.sizeof(_Cubin), len(cubin), cubin, 0)
    return 0 if cupti.cuptiGetCubinCrc(ctypes.byref(words)) else int(words.crc)
