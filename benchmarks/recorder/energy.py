"""Joules per step as `lanewise run` and `lanewise watch` say, against the card's counter over many more steps.

`python -m benchmarks.recorder.energy --out FILE [--seconds 20] [PROGRAM ...]`, on a machine with an NVIDIA card. Each
program runs by itself first and reads the counter (NVML) before and after a long stretch of steps; then once under each
verb. In turns, twice, as a card that gets warmer draws more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.fresh import call
from benchmarks.machine import described

PROGRAM = """
import sys, time, torch
from lanewise.capture.machine import energy_counter
which, seconds, alone = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "alone"
size, layers, batch = {"large": (8192, 4, 8192), "small": (512, 12, 64), "memory": (64, 1, 64)}[which]
model = torch.nn.Sequential(*[torch.nn.Linear(size, size) for _ in range(layers)]).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(batch, size, device="cuda", dtype=torch.bfloat16)
field = torch.randn(256 * 2**20, device="cuda") if which == "memory" else None
def step():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if field is not None:
        field.mul_(0.999).add_(1.0)
    loss.backward()
    optimizer.step()
def stretch(seconds):
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(20):
            step()
        steps += 20
        torch.cuda.synchronize()
    return steps
stretch(3)
read = energy_counter()
before, begun = read(), time.perf_counter()
steps = stretch(seconds)
after, took = read(), time.perf_counter() - begun
if alone:
    print((after - before) / steps, (after - before) / took)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="of large, small, memory")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(PROGRAM)
        for turn in range(args.turns):
            for name in args.programs or ("large", "small", "memory"):
                row = _one(Path(folder), name, args.seconds) | {"program": name, "turn": turn}
                rows.append(row)
                print(row, flush=True)
                args.out.write_text(
                    json.dumps({"schema": 1, "machine": call(described, seconds=60), "rows": rows}, indent=1)
                )
    return 0


def _one(folder: Path, name: str, seconds: float) -> dict[str, Any]:
    alone = _run([sys.executable, "program.py", name, str(seconds), "alone"], folder).split()
    joules, watts = float(alone[0]), float(alone[1])
    lanewise = [sys.executable, "-m", "lanewise"]
    program = ["program.py", name, str(seconds), "not"]
    _run([*lanewise, "run", "--no-explain", "--out", f"run-{name}", *program], folder)
    trace = max((folder / f"run-{name}").glob("*.json.gz"), key=lambda path: path.stat().st_mtime)
    tree = folder / f"{name}.lw"
    _run([*lanewise, "watch", "--force", "-o", str(tree), *program], folder)
    found: dict[str, Any] = {"counter_joules_per_step": round(joules, 6), "counter_watts": round(watts, 1)}
    found["step_us"] = round(joules / watts * 1e6, 1)
    for verb, recording in (("run", trace), ("watch", tree)):
        report = json.loads(_run([*lanewise, "explain", str(recording), "--json"], folder))
        cost = report.get("cost") or {}
        said = cost.get("joules_per_step", 0.0)
        found |= {
            f"{verb}_joules_per_step": said,
            f"{verb}_watts": cost.get("watts"),
            f"{verb}_step_us": report["regime"]["step_us"],
            f"{verb}_off": round(said / joules - 1, 4),
        }
    return found


def _run(words: list[str], folder: Path) -> str:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    raise SystemExit(main())
