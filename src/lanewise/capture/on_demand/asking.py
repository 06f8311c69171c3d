"""How recordings of a watched program can be asked for from outside: by a signal, by a call on loopback, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.capture.boundaries.finder import StepFinder
from lanewise.capture.file.save import rank_suffix
from lanewise.capture.inside import our_modules
from lanewise.capture.on_demand.by_signal import SignalAsks, signal_of
from lanewise.capture.on_demand.on_demand import Collecting, OnDemand
from lanewise.capture.on_demand.ordered import Ordered
from lanewise.errors import LanewiseError, UsageError

if TYPE_CHECKING:
    from lanewise.capture.on_demand.by_http import HttpAsks

__all__ = ["Asking"]


@dataclass(kw_only=True)
class Asking:
    """The doors through which recordings of one program are asked for.

    Args:
        signal: "USR1" or "USR2"; "" for none. port: of 127.0.0.1, 0 for any that is free, None for none.
        steps: how many, where nobody says. keep: traces that are kept.
    """

    signal: str = ""
    port: int | None = None
    steps: int = 10
    keep: int = 10
    _by_signal: SignalAsks | None = field(default=None, init=False)
    _by_http: HttpAsks | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port < 1 << 16:
            raise UsageError("a port is a number from 0 to 65535")
        if self.keep < 1:
            raise UsageError("at least one trace is kept")
        Ordered(steps=self.steps)
        if self.signal:
            signal_of(self.signal)

    def recordings(
        self, out: Path | None, source: str, finder: StepFinder, collecting: Collecting, log: Callable[[str], None]
    ) -> OnDemand:
        """What makes them. Traces go beside the tree: those of `serve.lw` into `serve-traces`."""
        program = out.stem.removesuffix(rank_suffix(os.environ)) if out is not None else source or "trace"
        folder = out.with_name(f"{program}-traces") if out is not None else Path("lanewise-out")
        return OnDemand(
            program,
            folder,
            keep=self.keep,
            usual=Ordered(steps=self.steps),
            finder=finder,
            collecting=collecting,
            log=log,
        )

    def open_signal(self, recordings: OnDemand, log: Callable[[str], None]) -> None:
        """From here on; on the main thread. Where it cannot be had a line says so, and the program goes on without it."""
        if self.signal:
            try:
                self._by_signal = SignalAsks(signal_of(self.signal), lambda: _ask(recordings, log))
                self._by_signal.install()
            except LanewiseError as error:
                log(str(error))

    def open_port(self, recordings: OnDemand, log: Callable[[str], None]) -> None:
        """The same. Ranks of one machine take ports in a row."""
        if self.port is None:
            return
        local = os.environ.get("LOCAL_RANK", "")
        port = self.port + int(local) if self.port and local.isdigit() else self.port
        try:
            with our_modules():
                from lanewise.capture.on_demand.by_http import HttpAsks

                self._by_http = HttpAsks(port, recordings)
            log(f"recordings can be asked for at http://127.0.0.1:{self._by_http.port}/record")
        except LanewiseError as error:
            log(str(error))

    @property
    def port_in_use(self) -> int | None:
        """Where calls are answered."""
        return self._by_http.port if self._by_http is not None else None

    def close(self) -> None:
        """No more."""
        if self._by_signal is not None:
            self._by_signal.uninstall()
        if self._by_http is not None:
            self._by_http.close()

    def forked(self) -> None:
        """This is another process."""
        if self._by_http is not None:
            self._by_http.forked()


def _ask(recordings: OnDemand, log: Callable[[str], None]) -> None:
    if refused := recordings.ask(recordings.usual):
        log(refused)
