"""A program whose kernels are sampled from when it uses its device to its end: by a thread of ours, beside it.

CUPTI can begin and end bursts of samples (`cuptiPCSamplingStart`, `Stop`), and must not: both wait for the driver with a
lock held that every launch takes inside of the driver, so that they and a launch on another thread wait for each other for
ever (CUPTI 13.0 on an H200: at the first burst). So it samples all the time, and rarely. It is switched on by the program's
main thread, which is in no launch then, and fetched by a thread of ours (`cuptiPCSamplingGetData` waits for nothing: 1,245
times in three seconds of launches). Switching it off waits like `Stop`, and a process that ended without was aborted (once,
while a thread still launched). So it comes at the very end, when the main thread launches no more, and the answer is
waited for ten seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from lanewise.capture.sampling.on_main_thread import run_on_main_thread
from lanewise.capture.sampling.pc_sampler import SamplingError, Taken

__all__ = ["PATIENCE_S", "SampledProgram", "Sampler", "why_forbidden"]

EVERY_S = 1.0
"""How often samples are fetched."""
PATIENCE_S = 10.0
"""How long the driver may take to answer at the end."""
_LOOK_S = 0.005
_NO_ANSWER = (
    "instructions are no longer sampled: the driver has not answered for {:.0f} s; what was fetched until then is kept"
)


class Sampler(Protocol):
    """What samples."""

    def fetch(self) -> Taken:
        """What was sampled since the last time."""
        ...

    def close(self) -> Taken:
        """Sample no more; what is left."""
        ...


class SampledProgram:
    """Samples from `begin` to `finish`.

    Attributes:
        taken: all that was sampled. seconds: for how long.
        problem: why nothing or no more is sampled, as a sentence; "" if all is well.
        stuck: whether the driver did not answer, and may not let the process end either.
    """

    def __init__(
        self,
        ready: Callable[[], int],
        sampler: Callable[[int], Sampler],
        *,
        every_s: float = EVERY_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`ready`: the context of the device once the program uses it, 0 before. `sampler`: begins to sample it."""
        self.taken, self.seconds, self.problem, self.stuck = Taken(), 0.0, "", False
        self._ready, self._sampler, self._every_s, self._patience_s = ready, sampler, every_s, patience_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lanewise-sampling", daemon=True)

    def begin(self) -> None:
        """Wait for the device, and sample."""
        self._thread.start()

    def finish(self) -> None:
        """Sample no more; what was sampled is in `taken`. Returns within the patience, whatever the driver does."""
        self._over.set()
        self._thread.join(self._patience_s)
        if self._thread.is_alive():
            self.stuck, self.problem = True, _NO_ANSWER.format(self._patience_s)

    def _run(self) -> None:
        try:
            self._sample()
        except (SamplingError, OSError, AttributeError) as error:
            self.problem = why_forbidden(error)

    def _sample(self) -> None:
        while not (context := self._ready()):
            if self._over.wait(_LOOK_S):
                return
        made: list[Sampler] = []
        begun = time.monotonic()
        if not run_on_main_thread(lambda: made.append(self._sampler(context)), self._over):
            return
        (sampler,) = made
        try:
            ended = False
            while not ended:
                ended = self._over.wait(self._every_s)
                self.taken.add(sampler.fetch())
        finally:
            self.seconds = time.monotonic() - begun
            self.taken.add(sampler.close())


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
