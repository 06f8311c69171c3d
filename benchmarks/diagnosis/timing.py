"""Time and memory of all measures and rules on a trace of 300 MB, after it has been read.

    python -m benchmarks.diagnosis.timing [--samples 5] [--out benchmarks/results/diagnosis-timing.json]

Every sample is a fresh process that reads the file without a kept copy and makes the report. Two traces: plain, and half
of the rows Python frames. Wall seconds; the peak is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.reader.generate import write
from benchmarks.sampled import sample, spread

_CASE = """
import json, resource, sys, time
from lanewise.diagnose.explain import explain
from lanewise.trace.reader import read
begun = time.perf_counter()
trace = read(sys.argv[1], cache=False)
read_s = time.perf_counter() - begun
begun = time.perf_counter()
report = explain(trace)
print(json.dumps({
    "read_s": read_s, "report_s": time.perf_counter() - begun, "findings": len(report.findings), "events": len(trace),
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    results: dict[str, Any] = {
        "what": "all measures and rules, after reading",
        "command": f"python -m benchmarks.diagnosis.timing --samples {asked.samples} --events {asked.events}",
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "shared": True,
                    "load_before": round(os.getloadavg()[0], 1)},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "msgspec")}},
        "targets": {"report_s": 2.0, "peak_over_file": 1.2},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.json" for name in ("plain", "frames")}
        for name, path in paths.items():
            write(path, asked.events, python=name == "frames")
        # In turns, so that a change of the machine's load falls on both.
        rows = [{name: sample(_CASE, str(path)) for name, path in paths.items()} for _ in range(asked.samples)]
        for name, path in paths.items():
            size = path.stat().st_size / 2**20
            results[name] = {
                "trace_mb": round(size, 1),
                "events": rows[0][name]["events"],
                "findings": rows[0][name]["findings"],
                **{key: spread([row[name][key] for row in rows]) for key in ("read_s", "report_s", "peak_mb")},
                "peak_over_file": round(max(row[name]["peak_mb"] for row in rows) / size, 2),
            }
    text = json.dumps(results, indent=1) + "\n"
    if asked.out is not None:
        asked.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
