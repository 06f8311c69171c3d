"""What a job of many ranks costs: traces of real ranks, copied under other numbers, read and compared in a fresh process.

    python -m benchmarks.ranks.many TRACE... --ranks 1024 -o many.json

Seconds of wall time and of all cores together, and the most memory that all processes hold at one time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).parents[2] / "src"
_RANK = re.compile(rb'("distributedInfo":\s*\{.*?"rank":\s*)\d+(.*?"world_size":\s*)\d+', re.DOTALL)
_HEAD = 1 << 16


def copied(paths: list[Path], ranks: int, folder: Path) -> int:
    """Write so many ranks; bytes of their text."""
    models: list[tuple[bytes, bytes, int]] = []
    for path in paths:
        text = gzip.decompress(path.read_bytes())
        models.append((text[:_HEAD], gzip.compress(text[_HEAD:], 6), len(text)))
    total = 0
    for rank in range(ranks):
        head, rest, size = models[rank % len(models)]
        changed, count = _RANK.subn(lambda found, rank=rank: b"%b%d%b%d" % (found[1], rank, found[2], ranks), head)
        if count != 1:
            raise SystemExit("these traces do not say their rank in their head")
        # Two members make one gzip file: only the first is compressed anew.
        (folder / f"rank{rank:05}.json.gz").write_bytes(gzip.compress(changed, 1) + rest)
        total += size
    return total


class Memory(threading.Thread):
    """The most that a process and its children hold at one time, bytes."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.most, self.over = process, 0, False

    def run(self) -> None:
        while not self.over:
            self.most = max(self.most, sum(resident(one) for one in family(self.process)))
            time.sleep(0.2)


def family(process: int) -> list[int]:
    found, open_ = [process], [process]
    while open_:
        try:
            task = Path(f"/proc/{open_.pop()}/task")
            children = [int(word) for one in task.iterdir() for word in (one / "children").read_text().split()]
        except (OSError, ValueError):
            continue
        found += children
        open_ += children
    return found


def resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def measured(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)
    memory = Memory(process.pid)
    memory.start()
    output, _ = process.communicate()
    memory.over = True
    memory.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = json.loads(output)["statements"]["ranks"][0]["template"] if process.returncode == 0 else output.decode()
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(cpu, 1),
        "memory_mb": round(memory.most / 1e6),
        "said": said,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--on", default="", help="as of lanewise ranks")
    parser.add_argument("-o", "--output", type=Path, default=Path("many-ranks.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "job"
        folder.mkdir()
        size = copied(args.traces, args.ranks, folder)
        environment = {**os.environ, "LANEWISE_CACHE_DIR": str(Path(scratch) / "store"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = f"{_SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        words = [sys.executable, "-m", "lanewise", "ranks", str(folder), "--json"]
        words += ["--on", args.on] if args.on else []
        results: dict[str, Any] = {
            "ranks": args.ranks,
            "megabytes_each": round(size / args.ranks / 1e6, 2),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        }
        quick = [*words, "--no-findings"]
        for name, line in (("first", quick), ("again", quick), ("with_findings", words)):
            results[name] = measured(line, environment)
            print(name, results[name], flush=True)
            args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
