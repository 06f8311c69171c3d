"""False alarms: two recordings of the same program, each in a process of its own, must differ in nothing.

A pair is an alarm if the comparison reports other work, or a time as faster or slower (the step's or an op's).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from lanewise.compare.diff import diff

PROGRAMS = ("mlp", "attention", "train")

_RECORD = """
import sys, torch
from lanewise.record.recorder import record
name, out = sys.argv[1:3]
torch.manual_seed(0)
torch.set_num_threads(1)
nn, functional = torch.nn, torch.nn.functional
device = "cuda" if torch.cuda.is_available() else "cpu"
if name == "attention":
    query = torch.randn(2, 4, 64, 32, device=device)
    def step():
        with torch.no_grad():
            functional.scaled_dot_product_attention(query, query, query, is_causal=True).add_(1).softmax(-1)
else:
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 128)).to(device)
    batch = torch.randn(32, 128, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    def step():
        if name == "mlp":
            with torch.no_grad():
                model(batch)
            return
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
with record(out=out, name=name) as recorder:
    for _ in range(110):
        step()
        recorder.step()
print(recorder.path)
"""


def record(program: str, folder: Path, python: str) -> Path:
    """One recording in a fresh process."""
    done = subprocess.run([python, "-c", _RECORD, program, str(folder)], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip().splitlines()[-1])


def measure(pairs: int, keep: Path | None = None, python: str = sys.executable) -> dict[str, Any]:
    """Record and compare `pairs` pairs, the programs in turn.

    Args:
        keep: folder of the recordings; pairs that it holds already are compared again and not recorded.
    """
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for pair in range(pairs):
            program = PROGRAMS[pair % len(PROGRAMS)]
            folder = (keep or Path(temporary)) / f"{pair:02}"
            folder.mkdir(parents=True, exist_ok=True)
            while len(held := sorted(folder.glob("*.json.gz"))) < 2:
                record(program, folder, python)
            a, b = held
            difference = diff(a, b, labels=["first", "second"]).differences[0]
            timed = [c for c in difference.device if c.ratio is not None and c.ratio.verdict in {"faster", "slower"}]
            found.append(
                {
                    "program": program,
                    "alarm": difference.changed,
                    "step": difference.step.verdict,
                    "step_ratio": difference.step.ratio,
                    "ops_with_another_time": [c.b[0].name[:60] for c in timed],
                    "other_work": sorted({c.how for c in difference.device} - {"same", "name"}),
                    "ops": dict(Counter(c.ratio.verdict for c in difference.device if c.ratio is not None)),
                }
            )
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    quiet = sum(not pair["alarm"] for pair in found)
    return {
        "pairs": pairs,
        "without_alarm": quiet,
        "step_verdicts": dict(Counter(p["step"] for p in found)),
        "each": found,
    }
