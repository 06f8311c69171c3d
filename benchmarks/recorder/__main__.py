"""Measures and writes `benchmarks/results/recorder-<date>.json`.

    python -m benchmarks.recorder [--only step_finder large_steps time_to_report]

Run it on a quiet machine, with torch and lanewise installed. Distortion: `benchmarks/experiments/distortion.py`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks.recorder import measure

MEASUREMENTS = ("step_finder", "large_steps", "time_to_report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MEASUREMENTS, default=MEASUREMENTS)
    parser.add_argument("-o", "--output", type=Path, default=None)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    now = datetime.datetime.now(datetime.UTC)
    result = {
        "schema": 1,
        "id": "recorder",
        "date": now.isoformat(timespec="seconds"),
        "command": ["python", "-m", "benchmarks.recorder", *sys.argv[1:]],
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "load_before": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    for name in args.only:
        print(f"{name} ...", file=sys.stderr)
        result[name] = getattr(measure, name)()
    result["machine"]["load_after"] = os.getloadavg()[0]
    output = args.output or Path(__file__).parents[1] / "results" / f"recorder-{now:%Y-%m-%d}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    shown = {name: {key: value for key, value in result[name].items() if "samples" not in key} for name in args.only}
    if "step_finder" in shown:
        shown["step_finder"] = {
            source: {key: value for key, value in found.items() if key != "samples_us"}
            for source, found in result["step_finder"].items()
        }
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
