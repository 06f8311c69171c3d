"""Time of a comparison of two large traces beyond reading them, in fresh processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compare.repeat import repeated

_DIFF = """
import json, sys, time
from lanewise.compare.sides.arm import Arm
from lanewise.compare.compare import compare_arms
from lanewise.compare.diff import run_of
from lanewise.trace.reader import read
wall, cpu = time.perf_counter(), time.process_time()
traces = [read(path, cache=False) for path in sys.argv[1:3]]
read_wall, read_cpu = time.perf_counter() - wall, time.process_time() - cpu
cpu = time.process_time()
runs = [run_of(trace) for trace in traces]
measured = time.process_time()
comparison = compare_arms([Arm("A", [runs[0]]), Arm("B", [runs[1]])])
done = time.process_time()
difference = comparison.differences[0]
print(json.dumps({
    "read_wall_s": read_wall, "read_cpu_s": read_cpu, "measure_and_diagnose_cpu_s": measured - cpu,
    "compare_cpu_s": done - measured, "diff_cpu_s": done - cpu, "ops_per_step": len(runs[0].work.at),
    "gone": sum(c.times for c in difference.device if c.how == "gone"),
    "other": sum(c.times for c in difference.device if c.how not in {"same", "gone"}),
}))
"""


def measure(source: Path, *, megabytes: float = 100.0, samples: int = 3) -> dict[str, Any]:
    """Two traces made of one recorded step, one of them without its `aten::neg` kernels."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "a.json", Path(folder) / "b.json"]
        for path, seed, without in zip(paths, (1, 2), ("", "aten::neg"), strict=True):
            repeated(source, path, size=int(megabytes * 1e6), seed=seed, without=without)
        sizes = [path.stat().st_size for path in paths]
        each = []
        for _ in range(samples):
            command = [sys.executable, "-c", _DIFF, *map(str, paths)]
            each.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
            print(json.dumps(each[-1]), file=sys.stderr, flush=True)
    middle = {key: statistics.median(sample[key] for sample in each) for key in each[0]}
    return {"source": source.name, "bytes": sizes, "samples": samples, "median": middle, "each": each}
