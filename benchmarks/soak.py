"""Whether watching a long run keeps its memory and its file small: `python -m benchmarks.soak [--steps N] [--device cuda]`.

A training step of two layers is watched for a million steps, with its file written as in production. Memory is read a
hundred times; the median of the last tenth is compared with that of the first after the start.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.context.programs import PROGRAMS
from benchmarks.machine import described
from benchmarks.slower_live import alert_text

import lanewise

READINGS = 100


def main() -> None:
    """Run, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--program", default="mlp", choices=list(PROGRAMS))
    parser.add_argument("--most-seconds", type=float, default=3_600.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/soak-cpu.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    step = PROGRAMS[given.program](given.device)
    for _ in range(200):
        step()
    memory: list[int] = []
    sizes: list[int] = []
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.lw")
        watcher = lanewise.watch(path, way="native")
        begin = time.monotonic()
        with watcher:
            while done < given.steps and time.monotonic() - begin < given.most_seconds:
                for _ in range(given.steps // READINGS):
                    step()
                done += given.steps // READINGS
                memory.append(resident())
                sizes.append(path.stat().st_size if path.exists() else 0)
        seconds = time.monotonic() - begin
        size = path.stat().st_size
        watched = watcher.tree.info.watched
    assert watched is not None
    tenth = max(1, len(memory) // 10)
    first, last = median(memory[:tenth]), median(memory[-tenth:])
    result: dict[str, Any] = {
        "steps_asked": given.steps,
        "steps": done,
        "seconds": round(seconds, 1),
        "step_us": round(1e6 * seconds / done, 1),
        "memory_kb": {"first_tenth": first, "last_tenth": last, "growth": round(last / first - 1, 5)},
        "file_bytes": {"end": size, "largest": max([*sizes, size])},
        "contexts": len(watcher.tree),
        "losses": watched.losses,
        "slowdowns": [alert_text(one) for one in watched.slowdowns],
        "history": len(watched.history),
        "device": given.device,
    }
    print(json.dumps(result), flush=True)
    given.out.write_text(json.dumps({"machine": described(), **result, "memory_kb_read": memory}, indent=1) + "\n")


def resident() -> int:
    """Memory of this process, kB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    main()
