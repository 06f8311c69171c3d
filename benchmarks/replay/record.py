"""Time and record every pair: `python -m benchmarks.replay.record --out DIR`.

Each pair has a process of its own: one that fails costs itself alone. Writes `truth.json` after each pair, traces as
`traces-N.tar` of at most 7.5 MB at the end, and what the processes print as `log.txt`.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fix.forked import warm_imports
from benchmarks.fresh import call
from benchmarks.replay.pairs import PAIRS, SEVERAL, Pair, Several

__all__ = ["main", "write"]

_TAR_BYTES = 7_500_000


def main(given: Sequence[str] | None = None) -> int:
    args = _arguments(given)
    out: Path = args.out
    traces = out / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(args)
    truth: dict[str, Any] = {"schema": 1, "command": " ".join(sys.argv[1:]), "machine": {}, "pairs": [], "failed": {}}
    began = time.monotonic()
    truth["machine"] = call(partial(_machine, args.device), seconds=60)
    for pair in chosen:
        left = args.budget - (time.monotonic() - began)
        if left < args.limit / 2:
            truth["failed"][pair.name] = "not begun: no time was left"
            continue
        found = call(partial(_one, pair, args, traces), seconds=min(left, args.limit), output=out / "log.txt")
        if "error" in found:
            truth["failed"][pair.name] = found["error"]
            print(f"{pair.name:28} {found['error'].strip().splitlines()[-1][:160]}", flush=True)
        else:
            truth["pairs"] += found["pairs"]
            print(*map(_line, found["pairs"]), sep="\n", flush=True)
        write(truth, out / "truth.json")
    write(truth, out / "truth.json")
    _pack(traces, out)
    print(f"{len(truth['pairs'])} pairs, {len(truth['failed'])} failed, {time.monotonic() - began:.0f} s")
    return 1 if truth["failed"] else 0


def write(truth: dict[str, Any], path: Path) -> None:
    """One line for each recording: many, and read by people, too."""
    text = json.dumps({**truth, "pairs": []}, indent=1)
    pairs = []
    for pair in truth["pairs"]:
        rows = ",\n".join("   " + json.dumps(row) for row in pair["recordings"])
        pairs.append("  " + json.dumps({**pair, "recordings": []})[:-2] + "\n" + rows + "\n  ]}")
    path.write_text(text.replace('"pairs": []', '"pairs": [\n' + ",\n".join(pairs) + "\n ]") + "\n")


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for what is found")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true", help="tiny sizes and few rounds: a trial, on the CPU, say")
    parser.add_argument(
        "--only",
        default="",
        help="pairs whose name contains one of these words, split by commas, in the order of the words",
    )
    parser.add_argument("--several", action="store_true", help="programs with several faults instead of pairs")
    parser.add_argument("--part", default="1/1", help="every n-th pair: 1/2 and 2/2 are two halves")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which no pair begins")
    parser.add_argument("--limit", type=float, default=75.0, help="seconds for one pair")
    return parser.parse_args(given)


def _chosen(args: argparse.Namespace) -> list[Pair | Several]:
    words = [word for word in args.only.split(",") if word]
    part, parts = (int(number) for number in args.part.split("/"))
    # Those of the first word come first: what the time does not suffice for is what was named last.
    every = SEVERAL if args.several else PAIRS
    named = {pair.name: pair for word in words for pair in every if word in pair.name}
    chosen = (list(named.values()) if words else list(every))[part - 1 :: parts]
    return chosen if args.device.startswith("cuda") else [pair for pair in chosen if not pair.needs_cuda]


def _one(pair: Pair | Several, args: argparse.Namespace, traces: Path) -> dict[str, Any]:
    import torch
    from benchmarks.replay.one import measure
    from benchmarks.replay.pairs import Place
    from benchmarks.replay.together import measure_several

    place = Place(torch.device(args.device), args.small)
    trial = {"rounds": 2, "block_s": 0.002} if args.small else {}
    if isinstance(pair, Several):
        return {"pairs": measure_several(pair, place, traces, **trial)}
    return {"pairs": [measure(pair, place, traces, **trial)]}


def _machine(device: str) -> dict[str, Any]:
    """Card, driver and versions."""
    import torch

    from lanewise import nvml

    try:
        import triton
    except ImportError:
        triton = None
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__ if triton else None,
        "kernel": platform.release(),
        "threads": torch.get_num_threads(),
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        found |= {"card": properties.name, "multiprocessors": properties.multi_processor_count,
                  "memory_bytes": properties.total_memory, "driver": nvml.driver_version()}  # fmt: skip
    return found


def _line(found: dict[str, Any]) -> str:
    slow = next(r for r in found["recordings"] if r["role"] == "slow")
    return (
        f"{found['name']:28} slow {found['slow_us']:10.1f}  fixed {found['fixed_us']:10.1f}  gain {found['gain_us']:9.1f}"
        f"  recorded {slow['recorded']['to_end_us']:10.1f} us  {sum(r['bytes'] for r in found['recordings']) // 1000:5} kB"
        f"  {found['seconds']:5.1f} s"
        + ("" if found.get("same_result", True) else f"  RESULTS DIFFER {found['difference']}")
    )


def _pack(traces: Path, out: Path) -> None:
    """All traces into as few archives as their size allows; the files themselves go."""
    archive: tarfile.TarFile | None = None
    used = number = 0
    for path in sorted(traces.glob("*.json.gz")):
        data = path.read_bytes()
        if archive is None or used + len(data) > _TAR_BYTES:
            if archive:
                archive.close()
            number, used = number + 1, 0
            archive = tarfile.open(out / f"traces-{number}.tar", "w")
        member = tarfile.TarInfo(path.name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
        used += len(data) + 1024
        path.unlink()
    if archive:
        archive.close()
    traces.rmdir()


if __name__ == "__main__":
    warm_imports(("benchmarks.replay.one",))
    sys.exit(main())
