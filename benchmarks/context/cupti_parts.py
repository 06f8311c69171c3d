"""What the collector costs programs that launch much, and how much of it is torch's and CUPTI's: callbacks for each
operator and each launch that do nothing, and records that nobody reads, in turn with nothing.

    python -m benchmarks.context.cupti_parts [--programs small_llama resmlp mlp] [--seconds 5] [--out FILE]

Everything in one process. Each part is on for a few steps and off for as many, in pairs whose order changes; the answer
is the median of the ratios of pairs, with its 95 % interval, as both sides of a pair see the same mood of the machine. All
parts together are the floor under every collector of operators and kernels.
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
    parser.add_argument("--programs", nargs="*", default=["small_llama", "resmlp", "mlp"], choices=list(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=5, help="for each part of each program")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cupti-parts.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    steps = {name: PROGRAMS[name](given.device) for name in given.programs}
    for step in steps.values():
        for _ in range(20):
            step()
    wait = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    result: dict[str, Any] = {"programs": {name: {} for name in steps}}

    def measure(part: str, *switches: Switch) -> None:
        for name, step in steps.items():
            result["programs"][name][part] = answer = ratio(step, wait, switches, given.seconds)
            print(name, part, json.dumps(answer), flush=True)
            given.out.write_text(json.dumps(result, indent=1) + "\n")

    callbacks = empty.load()
    operators = _switch(callbacks.on, callbacks.off)
    # Collectors first: what CUPTI's records leave behind would be part of them.
    ways: dict[str, dict[str, bool]] = {
        "the collector without device and frames": {"device": False, "frames": False},
        "the collector without the device": {"device": False},
        "the collector": {},
    }
    for name, options in ways.items():
        if not options and given.device == "cpu":
            continue
        collector = Native(**options)
        measure(name, _switch(collector.on, collector.off))
        collector.close()
    measure("callbacks for each operator", operators)
    if given.device == "cuda":
        cupti = Cupti()
        cupti.open()
        measure("CUPTI's records", cupti.records)
        measure("CUPTI's callbacks for each launch", cupti.calls)
        measure("all that do nothing", operators, cupti.records, cupti.calls)
    measure("nothing")
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def _switch(on: Callable[[], None], off: Callable[[], None]) -> Switch:
    return lambda wanted: on() if wanted else off()


def ratio(
    step: Callable[[], None], wait: Callable[[], None], switches: tuple[Switch, ...], seconds: float
) -> dict[str, Any]:
    """Times of steps with a part, over those without."""
    begin = time.perf_counter()
    step()
    wait()
    # Long enough for the clock, short enough for the machine's mood to stay.
    count = max(2, min(50, round(0.015 / (time.perf_counter() - begin))))
    sides: tuple[list[float], list[float]] = ([], [])
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(sides[0]) < 8:
        # on off off on, so that a drift hits both alike.
        for active in (True, False) if len(sides[0]) % 2 else (False, True):
            if active:
                for switch in switches:
                    switch(True)
            times: list[int] = []
            # The first ones after switching find other things in the processor's caches.
            for at in range(-2, count):
                start = time.perf_counter_ns()
                step()
                wait()
                if at >= 0:
                    times.append(time.perf_counter_ns() - start)
            sides[active].append(float(np.median(times)))
            if active:
                for switch in reversed(switches):
                    switch(False)
    off, on = (np.array(side) for side in sides)
    ratios = np.sort(on / off)
    # The ranks between which the median lies with 95 %.
    reach = 0.98 * np.sqrt(len(ratios))
    low, high = (int(np.clip(round(len(ratios) / 2 + way * reach), 0, len(ratios) - 1)) for way in (-1, 1))
    return {
        "ratio": round(float(np.median(ratios)), 4),
        "interval": [round(float(ratios[low]), 4), round(float(ratios[high]), 4)],
        "off_ms": round(float(np.median(off)) / 1e6, 3),
        "pairs": len(ratios),
        "steps_of_a_side": count,
    }


if __name__ == "__main__":
    main()
