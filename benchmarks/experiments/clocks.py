"""Logs clocks, power, temperature and throttle reasons while programs run, and summarises any stretch of the log."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path
from threading import Thread
from typing import Any

FIELDS = "clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
COLUMNS = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "busy_percent", "throttle_bits")


class ClockLog:
    """Reads `nvidia-smi` twice a second until closed; without it, logs nothing."""

    def __init__(self, path: Path) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._file = path.open("w", encoding="utf-8")
        self._file.write(",".join(("unix_seconds", *COLUMNS)) + "\n")
        self._process: subprocess.Popen[str] | None = None
        words = _query()
        if words:
            self._process = subprocess.Popen(
                [*words, "-lms", "500"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            try:
                *numbers, bits = (part.strip() for part in line.split(","))
                row = (time.time(), *(float(number) for number in numbers), float(int(bits, 16)))
            except ValueError:
                continue
            self.rows.append(row)
            self._file.write(",".join(f"{value:.2f}" for value in row) + "\n")

    def between(self, begin: float, end: float) -> dict[str, Any]:
        """Minimum, median and maximum of each column in a stretch of time; empty without rows."""
        rows = [row[1:] for row in self.rows if begin <= row[0] <= end]
        if not rows:
            return {}
        columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        bits = 0
        for value in columns.pop("throttle_bits"):
            bits |= int(value)
        spread = {name: [min(v), statistics.median(v), max(v)] for name, v in columns.items()}
        return {**spread, "throttle_bits": bits, "samples": len(rows)}

    def close(self) -> None:
        """End the log."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._file.close()


def _query() -> list[str]:
    """The query that this driver understands (the throttle field was renamed), or nothing without a GPU."""
    for reasons in REASONS:
        words = ["nvidia-smi", f"--query-gpu={FIELDS},{reasons}", "--format=csv,noheader,nounits"]
        try:
            if subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0:
                return words
        except (OSError, subprocess.TimeoutExpired):
            return []
    return []
