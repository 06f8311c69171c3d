"""Measures comparisons and writes `benchmarks/results/compare-<date>.json`.

    python -m benchmarks.compare [--only speed corpus edits alarms gate] [--trace TRACE]

`speed` and `corpus` need the H100 corpus, `alarms` and `gate` need torch.
Earlier results of the same day are kept and only the measured parts replaced.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.corpus import H100

from lanewise._version import __version__

PARTS = ("speed", "corpus", "edits", "alarms", "gate")


def _measure(part: str, asked: argparse.Namespace) -> dict[str, Any]:
    if part == "speed":
        from benchmarks.compare.speed import measure

        return measure(asked.trace)
    if part in {"corpus", "edits"}:
        from benchmarks.compare import pairs

        return getattr(pairs, part)()
    if part == "alarms":
        from benchmarks.compare import alarms

        return alarms.measure(asked.pairs, asked.keep)
    from benchmarks.compare import gate

    return gate.measure()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--trace", type=Path, default=H100 / "05_llama_train.json.gz")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--keep", type=Path, default=None, help="folder of the recordings of `alarms`")
    parser.add_argument("-o", "--output", type=Path, default=None)
    asked = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC)
    output = asked.output or Path(__file__).parents[1] / "results" / f"compare-{today:%Y-%m-%d}.json"
    result: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"schema": 1, "id": "compare"}
    for part in asked.only:
        print(f"{part} ...", file=sys.stderr, flush=True)
        before = os.getloadavg()[0]
        found = _measure(part, asked)
        result[part] = {**_circumstances(part), "load": [round(before, 1), round(os.getloadavg()[0], 1)], **found}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({k: v for k, v in found.items() if k != "each"}, indent=1))


def _circumstances(part: str) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "numpy": version("numpy"), "lanewise": __version__}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.compare --only {part}",
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "shared": True},
        "versions": versions,
    }


if __name__ == "__main__":
    main()
