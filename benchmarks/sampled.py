"""A number and its spread, each sample from a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

__all__ = ["sample", "spread"]


def sample(code: str, *arguments: str) -> dict[str, Any]:
    """One fresh process; its last line of output is its result."""
    # An installed package has its bytecode: without it every sample would compile the modules again.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True,
                          env=environment)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def spread(values: list[float]) -> dict[str, Any]:
    """Median, extremes and the samples themselves."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}
