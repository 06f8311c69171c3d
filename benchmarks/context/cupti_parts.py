"""What the collector costs a program that launches much, and how much of it is torch's and CUPTI's: callbacks for each
operator and each launch that do nothing, and records that nobody reads, in turn with nothing.

    python -m benchmarks.context.cupti_parts [--program small_llama] [--rounds 40] [--out FILE]

Everything in one process. Each part is on for eight steps, off for sixteen, on again, and so on; the answer is the ratio of
the medians, with its 95 % interval. All parts together are the floor under every collector of operators and kernels.
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
from benchmarks.context import empty
from benchmarks.context.programs import PROGRAMS
from benchmarks.machine import described

from lanewise.capture.context import native_build
from lanewise.capture.context.native import Native
from lanewise.capture.timing.distortion import ratio_interval

_HERE = Path(__file__).parent
Switch = Callable[[bool], None]


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

    def open(self) -> None:
        """Records come here from now on."""
        wrong = self.library.parts_open(native_build.cupti_library().encode())
        if wrong:
            raise SystemExit(wrong.decode())

    def calls(self, on: bool) -> None:
        """Switches callbacks of every call that the collector asks for."""
        if on:
            self.library.parts_subscribe()
        else:
            self.library.parts_unsubscribe()

    def records(self, on: bool) -> None:
        """Switches records of device work."""
        self.library.parts_records(int(on))
        if not on:
            self.library.parts_flush()


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="small_llama", choices=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cupti-parts.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    step = PROGRAMS[given.program]("cuda")
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    cupti = Cupti()
    callbacks = empty.load()

    def operators(on: bool) -> None:
        if on:
            callbacks.on()
        else:
            callbacks.off()

    parts: dict[str, tuple[Switch, ...]] = {
        "nothing": (),
        "callbacks for each operator": (operators,),
        "CUPTI's records": (cupti.records,),
        "CUPTI's callbacks for each launch": (cupti.calls,),
        "all of these": (operators, cupti.records, cupti.calls),
    }
    until = time.monotonic() + given.seconds
    result: dict[str, Any] = {"program": given.program, "parts": {}}

    def measure(name: str, *switches: Switch) -> None:
        if time.monotonic() < until:
            result["parts"][name] = answer = ratio(step, switches, given.rounds)
            print(name, json.dumps(answer), flush=True)
            given.out.write_text(json.dumps(result, indent=1) + "\n")

    measure("nothing, before CUPTI came")
    for name, device in (("the collector without the device", False), ("the collector", True)):
        collector = Native(device=device)
        measure(name, lambda on, one=collector: one.on() if on else one.off())
        collector.close()
    cupti.open()
    for name, switches in parts.items():
        measure(name, *switches)
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def ratio(step: Callable[[], None], switches: tuple[Switch, ...], rounds: int) -> dict[str, Any]:
    """Times of steps with a part, over those without."""
    on: list[float] = []
    off: list[float] = []
    for turn in range(2 * rounds):
        # on off off on, so that a drift hits both alike.
        active = turn % 4 in (0, 3)
        if active:
            for switch in switches:
                switch(True)
        # The first one after switching finds other things in the processor's caches.
        for at in range(9):
            begin = time.perf_counter_ns()
            step()
            torch.cuda.synchronize()
            if at:
                (on if active else off).append(time.perf_counter_ns() - begin)
        if active:
            for switch in reversed(switches):
                switch(False)
    interval = ratio_interval(on, off)
    return {
        "ratio": round(float(np.median(on) / np.median(off)), 4),
        "interval": [round(one, 4) for one in interval] if interval else None,
        "off_ms": round(float(np.median(off)) / 1e6, 3),
        "steps": [len(on), len(off)],
    }


if __name__ == "__main__":
    main()
