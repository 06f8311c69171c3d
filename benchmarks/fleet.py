"""How long adding up the trees of a fleet takes, and what memory: `python -m benchmarks.fleet [--trees N] [--out FILE]`.

A tree of a watched training step, with times of its own in each of N files, is added up by `lanewise tree DIR` in a process
of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import llama
from benchmarks.machine import described

import lanewise
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import load, save


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, nargs="*", default=[100, 1_000])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/fleet-cpu.json"))
    given = parser.parse_args()
    result: dict[str, Any] = {"machine": described(), "merged": []}
    one = watched(given.layers)
    with tempfile.TemporaryDirectory() as name:
        for number in given.trees:
            folder = Path(name, str(number))
            fill(folder, one, number)
            result["contexts_of_one"] = len(one)
            result["bytes_of_one"] = (folder / "host0" / "rank0.lw").stat().st_size
            for _ in range(given.repeats):
                result["merged"].append(added_up(folder, number, Path(name, "sum.lwtree")))
                print(json.dumps(result["merged"][-1]), flush=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def watched(layers: int) -> Tree:
    """The tree of some training steps."""
    torch.set_num_threads(1)
    step = llama("cpu", layers=layers)
    with lanewise.watch(way="native", measure=False) as watcher:
        for _ in range(20):
            step()
    return watcher.tree


def fill(folder: Path, tree: Tree, number: int) -> None:
    """So many files in folders of eight; now and then a name of its own, as in processes of one program."""
    random = np.random.default_rng(0)
    for row in range(number):
        metrics = dict(tree.metrics)
        metrics["host"] = (metrics["host"] * random.uniform(0.8, 1.2, len(tree))).astype(np.int64)
        place = folder / f"host{row // 8}"
        place.mkdir(parents=True, exist_ok=True)
        strings = [text + str(row % 8) if random.random() < 0.0005 and text else text for text in tree.strings]
        one = Tree(
            parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail,
            forward=tree.forward, strings=strings, metrics=metrics, info=tree.info,
        )  # fmt: skip
        save(one, place / f"rank{row % 8}.lw")


def added_up(folder: Path, number: int, out: Path) -> dict[str, Any]:
    """One run of the command."""
    begin = time.monotonic()
    words = [sys.executable, "-m", "lanewise", "tree", str(folder), "--to", "tree", "-o", str(out), "--force"]
    largest: dict[str, int] = {}
    with subprocess.Popen(words, start_new_session=True) as process:
        while process.poll() is None:
            largest |= _memory_of(process.pid)
            time.sleep(0.02)
    seconds = time.monotonic() - begin
    assert process.returncode == 0
    peak = max(largest.values(), default=0)
    whole = load(out)
    return {
        "trees": number,
        "seconds": round(seconds, 2),
        "largest_process_mb": round(peak / 1024, 1),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "contexts": len(whole),
        "counted": whole.info.trees,
    }


def _memory_of(session: int) -> dict[str, int]:
    """The largest size so far of each process of a session, kB: the command, and those that it starts."""
    found: dict[str, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int((place / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                status = (place / "status").read_text()
                found[place.name] = int(status.partition("VmHWM:")[2].split()[0])
        except (OSError, IndexError, ValueError):
            continue
    return found


if __name__ == "__main__":
    main()
