"""Peak memory of the program with and without a variant; the program's own is measured once."""

from __future__ import annotations

from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.speed.peak_memory import peak_bytes
from lanewise.fix.trial.workbench import Bench

__all__ = ["Peaks"]


class Peaks:
    """Peaks of one program."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = -1

    def of(self, whole: Variant) -> dict[str, int]:
        """`peak_before` and `peak_after`, bytes, as an `Attempt` has them; -1 where it cannot be told."""
        if self._before < 0:
            self._before = peak_bytes(self._bench.subject, self._bench.state, None)
        return {
            "peak_before": self._before,
            "peak_after": peak_bytes(self._bench.subject, self._bench.state, whole),
        }
