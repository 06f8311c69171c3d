"""What CUPTI itself costs a program that launches much: its calls and its records, each by itself, in turn with nothing.

    python -m benchmarks.context.cupti_parts [--program llama] [--rounds 12] [--out FILE]

Everything in one process. Each part is on for a few steps, off for a few, on again, and so on; the answer is the ratio of
the times of neighbouring stretches, with the interval of the median. Nothing is done with what CUPTI delivers, so that this
is the floor under every collector that asks for it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import PROGRAMS
from benchmarks.machine import described

from lanewise.capture.context import native_build
from lanewise.capture.timing.distortion import ratio_interval

_HERE = Path(__file__).parent
_ZEROED_BY_US, _PINNED, _PER_THREAD = 5, 8, 9
"""CUpti_ActivityAttribute."""


class Cupti:
    """The parts, compiled."""

    def __init__(self) -> None:
        sources = Path(native_build.__file__).with_name("native")
        path = Path(tempfile.mkdtemp()) / "cupti_parts.so"
        files = [str(_HERE / "cupti_parts.cpp"), str(sources / "cupti_library.cpp")]
        subprocess.run(
            ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{sources}", *files, "-ldl", "-o", str(path)],
            check=True,
        )
        self.library = ctypes.CDLL(str(path))
        self.library.parts_open.restype = ctypes.c_char_p
        self.library.parts_bytes.restype = self.library.parts_calls.restype = ctypes.c_ulonglong
        found = native_build.cupti_library()
        wrong = self.library.parts_open(found.encode())
        if wrong:
            raise SystemExit(wrong.decode())
        self._cupti = ctypes.CDLL(found)

    def attribute(self, number: int, value: int) -> int:
        """Sets an attribute of one byte; CUPTI's answer."""
        byte, size = ctypes.c_uint8(value), ctypes.c_size_t(1)
        return int(self._cupti.cuptiActivitySetAttribute(number, ctypes.byref(size), ctypes.byref(byte)))

    def calls(self, driver: int = 0, runtime: int = 0, everything: int = 0) -> Callable[[bool], None]:
        """What switches callbacks on and off."""

        def switch(on: bool) -> None:
            if on:
                self.library.parts_subscribe(driver, runtime, everything)
            else:
                self.library.parts_unsubscribe()

        return switch

    def records(self, on: bool) -> None:
        """Switches records of device work."""
        self.library.parts_records(int(on))
        if not on:
            self.library.parts_flush()


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="llama", choices=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cupti-parts.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    step = PROGRAMS[given.program]("cuda")
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    cupti = Cupti()
    records = cupti.records
    driver, runtime, everything = cupti.calls(driver=1), cupti.calls(runtime=1), cupti.calls(everything=1)
    parts: dict[str, tuple[Callable[[bool], None], ...]] = {
        "nothing": (),
        "records": (records,),
        "launches in the driver": (driver,),
        "launches in the runtime": (runtime,),
        "every call that the collector asks for": (everything,),
        "records and every call": (records, everything),
    }
    until = time.monotonic() + given.seconds
    result: dict[str, Any] = {"program": given.program, "attributes": {}, "parts": {}}
    for attribute in ("", "zeroed by us", "one buffer for all threads"):
        if attribute:
            number, value = (_ZEROED_BY_US, 1) if attribute.startswith("zeroed") else (_PER_THREAD, 0)
            result["attributes"][attribute] = cupti.attribute(number, value)
        for name in parts if not attribute else ("records and every call",):
            if time.monotonic() < until:
                answer = ratio(step, parts[name], given.rounds, cupti)
                label = f"{name}, {attribute}" if attribute else name
                print(label, json.dumps(answer), flush=True)
                result["parts"][label] = answer
                given.out.write_text(json.dumps(result, indent=1) + "\n")
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def ratio(step: Callable[[], None], switches: tuple[Callable[[bool], None], ...], rounds: int, cupti: Cupti) -> Any:
    """Times of steps with a part, over those without."""
    on: list[float] = []
    off: list[float] = []
    steps = 4
    calls, bytes_ = cupti.library.parts_calls(), cupti.library.parts_bytes()
    for turn in range(2 * rounds):
        # on off off on, so that a drift hits both alike.
        active = turn % 4 in (0, 3)
        if active:
            for switch in switches:
                switch(True)
        for at in range(steps + 1):
            begin = time.perf_counter_ns()
            step()
            torch.cuda.synchronize()
            if at:
                (on if active else off).append(time.perf_counter_ns() - begin)
        if active:
            for switch in reversed(switches):
                switch(False)
    interval = ratio_interval(on, off)
    steps_on = len(on) * (steps + 1) // steps
    return {
        "ratio": round(float(np.median(on) / np.median(off)), 4),
        "interval": [round(one, 4) for one in interval] if interval else None,
        "off_ms": round(float(np.median(off)) / 1e6, 3),
        "callbacks_per_step": (cupti.library.parts_calls() - calls) / steps_on,
        "bytes_per_step": (cupti.library.parts_bytes() - bytes_) / steps_on,
    }


if __name__ == "__main__":
    main()
