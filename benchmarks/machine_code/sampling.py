"""Samples of what warps wait for, per instruction, by the library that comes with torch: whether this machine allows it,
what it costs, and whether its top reason is that of Nsight Compute.

    python -m benchmarks.machine_code.sampling OUT.json --planted PLANTED.cubin
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine_code.driver import Module
from benchmarks.machine_code.measure import launches
from tests.machine_code.planted_cuda import DEFECTS

_NAME = 128
_MOST_PCS = 4096
_PERIOD, _MODE, _START_STOP, _FORMAT, _BUFFER = 1, 5, 6, 7, 8
_CONTINUOUS, _PARSED = 1, 1


class _Enable(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("private", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class _Count(ctypes.Structure):
    _fields_ = [*_Enable._fields_, ("number", ctypes.POINTER(ctypes.c_size_t))]


class _Reasons(ctypes.Structure):
    _fields_ = [
        *_Enable._fields_,
        ("number", ctypes.c_size_t),
        ("index", ctypes.POINTER(ctypes.c_uint32)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
    ]


class _Attribute(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("status", ctypes.c_int32), ("data", ctypes.c_uint64 * 3)]


class _Configuration(ctypes.Structure):
    _fields_ = [*_Enable._fields_, ("number", ctypes.c_size_t), ("attributes", ctypes.POINTER(_Attribute))]


class _Reason(ctypes.Structure):
    _fields_ = [("index", ctypes.c_uint32), ("samples", ctypes.c_uint32)]


class _Pc(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("crc", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("function_index", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("function", ctypes.c_char_p),
        ("number", ctypes.c_size_t),
        ("reasons", ctypes.POINTER(_Reason)),
        ("correlation", ctypes.c_uint32),
    ]


class _Data(ctypes.Structure):
    _fields_ = [
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
    ]


class _GetData(ctypes.Structure):
    _fields_ = [*_Enable._fields_, ("data", ctypes.c_void_p)]


class Sampler:
    """Samples of the current context, every 2^`period` clocks.

    Raises:
        RuntimeError: the machine does not allow it, in CUPTI's words.
    """

    def __init__(self, period: int = 12) -> None:
        torch.zeros(1, device="cuda")
        self._cupti = _library()
        self._context = ctypes.c_void_p()
        ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(self._context))
        self._call("Enable", _Enable(ctypes.sizeof(_Enable), None, self._context))
        number = ctypes.c_size_t()
        self._call("GetNumStallReasons", _Count(ctypes.sizeof(_Count), None, self._context, ctypes.pointer(number)))
        count = number.value
        index, buffers = (ctypes.c_uint32 * count)(), [ctypes.create_string_buffer(_NAME) for _ in range(count)]
        names = (ctypes.c_char_p * count)(*(ctypes.addressof(one) for one in buffers))
        self._call("GetStallReasons", _Reasons(ctypes.sizeof(_Reasons), None, self._context, count, index, names))
        self._names = {index[at]: buffers[at].value.decode() for at in range(count)}
        self._room = [_Buffer(count), _Buffer(count)]
        values = {
            _PERIOD: period,
            _MODE: _CONTINUOUS,
            _START_STOP: 1,
            _FORMAT: _PARSED,
            _BUFFER: ctypes.addressof(self._room[0].data),
        }
        attributes = (_Attribute * len(values))(
            *(_Attribute(kind, 0, (ctypes.c_uint64 * 3)(value, 0, 0)) for kind, value in values.items())
        )
        self._call(
            "SetConfigurationAttribute",
            _Configuration(ctypes.sizeof(_Configuration), None, self._context, len(values), attributes),
        )

    def _call(self, name: str, words: ctypes.Structure) -> None:
        code = getattr(self._cupti, f"cuptiPCSampling{name}")(ctypes.byref(words))
        if code:
            said = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(code, ctypes.byref(said))
            raise RuntimeError(f"{name}: {(said.value or b'?').decode()}")

    def start(self) -> None:
        """Begin a burst."""
        self._call("Start", _Enable(ctypes.sizeof(_Enable), None, self._context))

    def stop(self) -> tuple[dict[str, Counter[tuple[int, str]]], dict[str, int]]:
        """End a burst: samples of each function by offset and reason, and how many there were and were lost."""
        self._call("Stop", _Enable(ctypes.sizeof(_Enable), None, self._context))
        found: dict[str, Counter[tuple[int, str]]] = {}
        said = {"samples": 0, "dropped": 0, "others": 0}
        for room in (self._room[1], self._room[0]):
            while True:
                if room is self._room[1]:
                    words = _GetData(ctypes.sizeof(_GetData), None, self._context, ctypes.addressof(room.data))
                    self._call("GetData", words)
                data = room.data
                said["samples"] += data.samples
                said["dropped"] += data.dropped
                said["others"] += data.others
                for at in range(data.number):
                    pc = data.pcs[at]
                    counter = found.setdefault((pc.function or b"?").decode(), Counter())
                    for which in range(pc.number):
                        counter[pc.offset, self._names.get(pc.reasons[which].index, "?")] += pc.reasons[which].samples
                more = data.remaining > 0 and room is self._room[1]
                room.empty()
                if not more:
                    break
        return found, said

    def close(self) -> None:
        """Sample no more."""
        self._call("Disable", _Enable(ctypes.sizeof(_Enable), None, self._context))


class _Buffer:
    """Room for what was sampled at some thousand instructions."""

    def __init__(self, reasons: int) -> None:
        self._reasons = (_Reason * (reasons * _MOST_PCS))()
        self._pcs = (_Pc * _MOST_PCS)()
        step = reasons * ctypes.sizeof(_Reason)
        for at, pc in enumerate(self._pcs):
            pc.size = ctypes.sizeof(_Pc)
            pc.reasons = ctypes.cast(ctypes.addressof(self._reasons) + at * step, ctypes.POINTER(_Reason))
        self.data = _Data(ctypes.sizeof(_Data), _MOST_PCS)
        self.data.pcs = ctypes.cast(self._pcs, ctypes.POINTER(_Pc))

    def empty(self) -> None:
        """Forget what was in it."""
        self.data.samples = self.data.dropped = self.data.number = self.data.remaining = self.data.others = 0


def _library() -> ctypes.CDLL:
    """CUPTI as torch has loaded it, or as it lies beside it."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        for path in sorted(Path(place).glob("*/lib/libcupti.so.*")):
            return ctypes.CDLL(str(path))
    return ctypes.CDLL("libcupti.so.13")


def _cost(launch: Any, sampler: Sampler) -> dict[str, float]:
    """Seconds of a launch without and with sampling."""

    def timed() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            launch()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / 20

    plain = min(timed() for _ in range(3))
    sampler.start()
    sampled = min(timed() for _ in range(3))
    sampler.stop()
    return {"plain_seconds": plain, "sampled_seconds": sampled}


def main() -> None:
    """Sample each planted kernel and its twin, and write as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--planted", type=Path, required=True)
    asked = parser.parse_args()
    result: dict[str, Any] = {"kernels": {}}
    try:
        sampler = Sampler()
    except (RuntimeError, OSError) as error:
        asked.out.write_text(json.dumps({"forbidden": str(error)}) + "\n")
        print(f"This machine does not let instructions be sampled: {error}")
        return
    planted = Module(asked.planted)
    for plant in DEFECTS:
        slow, mended, *_ = launches(planted, plant)
        for name, launch in ((plant.name, slow), (f"{plant.name}_mended", mended)):
            launch()
            torch.cuda.synchronize()
            sampler.start()
            for _ in range(5):
                launch()
            torch.cuda.synchronize()
            found, said = sampler.stop()
            samples = found.get(name, Counter())
            reasons = Counter[str]()
            for (_, reason), number in samples.items():
                reasons[reason] += number
            rows = [[offset, reason, number] for (offset, reason), number in samples.most_common(40)]
            result["kernels"][name] = {"reasons": dict(reasons.most_common()), "instructions": rows, **said}
            print(f"{name:26} {said} {reasons.most_common(3)}", flush=True)
        if plant.name in ("row_sums", "plain_product"):
            result["kernels"][plant.name]["cost"] = _cost(slow, sampler)
    sampler.close()
    asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
