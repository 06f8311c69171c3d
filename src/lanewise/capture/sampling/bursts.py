"""Samples in bursts: a thread of ours that lets the device be sampled for a moment every second, beside the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from lanewise.capture.sampling.pc_sampler import Burst, SamplingError

__all__ = ["Bursts", "Sampler", "why_forbidden"]

ON_S, EVERY_S = 0.05, 1.0
"""How long a burst lasts, and how often there is one."""
_LOOK_S = 0.005
_PATIENCE_S = 10.0


class Sampler(Protocol):
    """What samples."""

    def start(self) -> None:
        """Begin a burst."""
        ...

    def stop(self) -> Burst:
        """End it."""
        ...

    def close(self) -> None:
        """Sample no more."""
        ...


class Bursts:
    """Runs from `begin` to `finish`.

    Attributes:
        found: all that was sampled. number: bursts. seconds: that they lasted, together.
        problem: why nothing or no more is sampled, as a sentence; "" if all is well.
    """

    def __init__(self, sampler: Callable[[], Sampler | None], on_s: float = ON_S, every_s: float = EVERY_S) -> None:
        """`sampler`: makes one once the program uses its device; None before."""
        self.found, self.number, self.seconds, self.problem = Burst(), 0, 0.0, ""
        self._sampler, self._on_s, self._every_s = sampler, on_s, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lanewise-sampling", daemon=True)

    def begin(self) -> None:
        """Wait for the device, and sample."""
        self._thread.start()

    def finish(self) -> None:
        """Sample no more; what was sampled is in `found`."""
        self._over.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._sample()
        except (SamplingError, OSError, AttributeError) as error:
            self.problem = why_forbidden(error)

    def _sample(self) -> None:
        while (sampler := self._sampler()) is None:
            if self._over.wait(_LOOK_S):
                return
        try:
            while True:
                begun = time.monotonic()
                sampler.start()
                ended = self._over.wait(self._on_s)
                self.seconds += time.monotonic() - begun
                self.found.add(sampler.stop())
                self.number += 1
                if ended or self._over.wait(max(0.0, self._every_s - (time.monotonic() - begun))):
                    return
        finally:
            with suppress(SamplingError):
                sampler.close()


_WHY: dict[str, str] = {
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": "the driver refuses it to this user: ask for "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root",
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": "the virtual machine's host has not allowed profiling",
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": "the device is a virtual one, which cannot be sampled",
    "CUPTI_ERROR_NOT_SUPPORTED": "this card or driver cannot do it",
    "CUPTI_ERROR_INVALID_DEVICE": "this card or driver cannot do it",
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": "another tool holds CUPTI: Nsight, Proton, or DCGM's profiling",
    "CUPTI_ERROR_HARDWARE_BUSY": "another tool holds the counters: Nsight, or DCGM's profiling",
}


def why_forbidden(error: Any) -> str:
    """Why instructions cannot be sampled here, in one sentence."""
    code = getattr(error, "code", "")
    why = _WHY.get(code) or (f"CUPTI says {error}" if code else f"no CUPTI library can be used ({error})")
    return f"instructions cannot be sampled on this machine: {why}"
