"""Time and memory of the calling-context tree of a 300 MB trace, half of it Python frames.

    python -m benchmarks.tree [--samples 5] [--out benchmarks/tree/results/NAME.json]

Every sample is a fresh process. `build` is everything between a trace that has been read and its tree: nesting, links,
steps and the tree itself. `view` is loading a saved tree and making the default view's text, `command` the same from
the shell, start of Python included. Wall and CPU seconds: on a shared machine the CPU seconds are the trustworthy ones.
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

from benchmarks.reader.generate import write as write_random
from benchmarks.sampled import sample, spread
from benchmarks.tree.program import write as write_program

_BUILD = """
import json, resource, sys, time
from lanewise.trace.reader import read
from lanewise.tree.build import build_tree
from lanewise.tree.tree_file import dumps
trace = read(sys.argv[1], cache=False)
peak_read = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, cpu = time.perf_counter(), time.process_time()
tree = build_tree(trace)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = dumps(tree)
total = int(trace.duration[trace.device_work].sum())
assert tree.total("device") == total
open(sys.argv[2], "wb").write(data)
print(json.dumps({
    "wall_s": wall, "cpu_s": cpu, "peak_mb": peak / 1024, "peak_after_reading_mb": peak_read / 1024,
    "events": len(trace), "nodes": len(tree), "truncated": tree.info.truncated, "saved_bytes": len(data),
    "linked": tree.info.linked, "backward": tree.info.backward,
}))
"""

_VIEW = """
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
from lanewise.show.tree.tree_terminal import tree_rows, tree_text
from lanewise.tree.tree_file import load
from lanewise.tree.views import top_down
tree = top_down(load(sys.argv[1]))
text = tree_text(tree, tree_rows(tree)).plain
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps({"wall_s": wall, "cpu_s": cpu, "rows": text.count(chr(10))}))
"""

_COMMAND = """
import json, os, subprocess, sys, time
before, wall = os.times(), time.perf_counter()
subprocess.run([sys.executable, "-c", "from lanewise.cli.main import main; main()", "tree", sys.argv[1]], check=True,
               stdout=subprocess.DEVNULL)
wall, after = time.perf_counter() - wall, os.times()
cpu = after.children_user - before.children_user + after.children_system - before.children_system
print(json.dumps({"wall_s": wall, "cpu_s": cpu}))
"""


def measure(path: Path, saved: Path, samples: int) -> dict[str, Any]:
    """All numbers of one trace."""
    builds = [sample(_BUILD, str(path), str(saved)) for _ in range(samples)]
    sample(_COMMAND, str(saved))
    views = [sample(_VIEW, str(saved)) for _ in range(samples)]
    commands = [sample(_COMMAND, str(saved)) for _ in range(samples)]
    facts = {key: builds[0][key] for key in ("events", "nodes", "truncated", "saved_bytes", "linked", "backward")}
    return {
        "trace_mb": round(path.stat().st_size / 1e6, 1),
        **facts,
        "build": {key: spread([row[key] for row in builds])
                  for key in ("wall_s", "cpu_s", "peak_mb", "peak_after_reading_mb")},
        "view": {key: spread([row[key] for row in views]) for key in ("wall_s", "cpu_s")},
        "command": {key: spread([row[key] for row in commands]) for key in ("wall_s", "cpu_s")},
    }  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--events", type=int, default=950_000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, random = Path(folder) / "program.json", Path(folder) / "random.json"
        write_program(program, options.events, layers=12)
        write_random(random, options.events, python=True)
        results = {
            "what": "calling-context tree of a trace, half of it Python frames",
            "command": f"python -m benchmarks.tree --samples {options.samples} --events {options.events}",
            "machine": {"cpus": os.cpu_count(), "architecture": platform.machine(), "shared": True,
                        "load_before": round(os.getloadavg()[0], 1),
                        "niceness": os.nice(0)},
            "versions": {"python": platform.python_version(),
                         **{name: version(name) for name in ("numpy", "polars", "msgspec", "rich", "click")}},
            "targets": {"build_wall_s": 3.0, "build_peak_mb": 1000, "view_wall_s": 0.3, "saved_bytes": 1_000_000},
            "program": measure(program, Path(folder) / "a.lwtree", options.samples),
            # Frames drawn at random: nearly every path occurs once, which no program does. The worst case.
            "random": measure(random, Path(folder) / "b.lwtree", options.samples),
        }  # fmt: skip
    text = json.dumps(results, indent=1) + "\n"
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
