"""What `lanewise run --sample` does in the program's process: samples, and at the end a file and what it says."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from lanewise.capture.file.save import free_path, rank_suffix
from lanewise.capture.sampling.device_context import context_in_use, loaded_cupti
from lanewise.capture.sampling.library_code import code_in_libraries, loaded_libraries
from lanewise.capture.sampling.pc_sampler import PcSampler, crc_of
from lanewise.capture.sampling.sampled_program import PATIENCE_S, SampledProgram
from lanewise.capture.sampling.samples_file import caches, samples_of, write_samples
from lanewise.capture.say import say
from lanewise.cli.recording.explain_kernels import explain_kernels, search_path

__all__ = ["PERIOD", "sampler_of", "start"]

PERIOD = 18
"""A sample every 2^18 clocks of a multiprocessor, of each of its warps: some hundreds a millisecond on a large card."""


def start(order: dict[str, Any]) -> None:
    """Begins in the program's process, before its first line; `order` is what `lanewise run` was told."""
    sampled = SampledProgram(context_in_use, sampler_of)
    atexit.register(_Afterwards(sampled, order).run)
    sampled.begin()


def sampler_of(context: int) -> PcSampler:
    """What samples a context, as often as a program is sampled."""
    return PcSampler(loaded_cupti(), context, PERIOD)


def _end_in(seconds: float) -> None:
    """A driver that does not answer may not let the process end either: then the system ends it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


class _Afterwards:
    def __init__(self, sampled: SampledProgram, order: dict[str, Any]) -> None:
        self._sampled, self._explain = sampled, order["explain"]
        self._folder, self._name = Path(order["out"]).absolute(), order["name"] + rank_suffix(os.environ)
        self._process = os.getpid()
        self._search = search_path()

    def run(self) -> None:
        """Ends the sampling; never raises."""
        with contextlib.suppress(Exception, KeyboardInterrupt):
            if os.getpid() == self._process:
                self._end()

    def _end(self) -> None:
        sampled = self._sampled
        sampled.finish()
        if sampled.problem:
            say(sampled.problem)
        if sampled.stuck:
            _end_in(PATIENCE_S)
        if not sampled.taken.counts:
            if not sampled.problem:
                say("nothing was sampled: no kernel of the program ran on a device while it was looked at")
            return
        cupti = loaded_cupti()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = free_path(self._folder, self._name, ".samples.json")
            crc = partial(crc_of, cupti)
            keep = path.with_suffix("").with_suffix(".kernels")
            elsewhere = partial(code_in_libraries, libraries=loaded_libraries(), crc=crc, keep=keep)
            write_samples(path, samples_of(sampled.taken, sampled.seconds, crc, caches(), elsewhere))
        except OSError as error:
            say(f"cannot write samples in {self._folder}: {error.strerror or error}")
            return
        explain_kernels(path, self._search, explain=self._explain)
