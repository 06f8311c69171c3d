"""What `lanewise run --sample` does in the program's process: bursts of samples, and at the end a file and what it says."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from lanewise.capture.file.save import free_path, rank_suffix
from lanewise.capture.sampling.bursts import Bursts
from lanewise.capture.sampling.device_context import context_in_use, loaded_cupti
from lanewise.capture.sampling.pc_sampler import PcSampler, crc_of
from lanewise.capture.sampling.samples_file import caches, samples_of, write_samples
from lanewise.capture.say import say
from lanewise.search import installed_first

__all__ = ["PERIOD", "start"]

PERIOD = 15
"""A sample every 2^15 clocks of a multiprocessor: some thousands a millisecond on a large card."""
_MAIN = """
import sys; sys.path[:] = {search!r}
from lanewise.cli.main import main
main()
"""


def start(order: dict[str, Any]) -> None:
    """Begins in the program's process, before its first line; `order` is what `lanewise run` was told."""
    bursts = Bursts(_sampler)
    atexit.register(_Afterwards(bursts, order).run)
    bursts.begin()


def _sampler() -> PcSampler | None:
    context = context_in_use()
    return PcSampler(loaded_cupti(), context, PERIOD) if context else None


class _Afterwards:
    def __init__(self, bursts: Bursts, order: dict[str, Any]) -> None:
        self._bursts, self._explain = bursts, order["explain"]
        self._folder, self._name = Path(order["out"]).absolute(), order["name"] + rank_suffix(os.environ)
        self._process = os.getpid()
        self._search = [str(Path(__file__).resolve().parents[3]), *installed_first()]

    def run(self) -> None:
        """Ends the sampling; never raises."""
        with contextlib.suppress(Exception, KeyboardInterrupt):
            if os.getpid() == self._process:
                self._end()

    def _end(self) -> None:
        bursts = self._bursts
        bursts.finish()
        if bursts.problem:
            say(bursts.problem)
        if not bursts.found.counts:
            if not bursts.problem:
                say("nothing was sampled: no kernel of the program ran on a device while it was looked at")
            return
        cupti = loaded_cupti()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = free_path(self._folder, self._name, ".samples.json")
            write_samples(path, samples_of(bursts, lambda code: crc_of(cupti, code), caches()))
        except OSError as error:
            say(f"cannot write samples in {self._folder}: {error.strerror or error}")
            return
        shown = os.path.relpath(path)
        if not self._explain or os.environ.get("RANK", "0") != "0":
            say(f"next: lanewise kernel {shlex.quote(shown)}")
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        command = [sys.executable, "-c", _MAIN.format(search=self._search), "kernel", shown]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LANEWISE_")}
        subprocess.run(command, env=environment, stdout=sys.__stderr__, check=False)
