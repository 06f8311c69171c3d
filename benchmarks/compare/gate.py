"""The gate with a step that computes: how often it fails on 10 % more work, and on none.

Arms are recorded in turns, as a CI job should record the merge base and the change. The limit is an increase of 4 %.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from lanewise.capture.recorder import record
from lanewise.compare.budget import parse_budgets
from lanewise.compare.check import check
from lanewise.compare.diff import run_of
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import Run
from lanewise.trace.reader import read

_PRODUCTS = 60


def _record(folder: Path, name: str, products: int, steps: int) -> Run:
    import torch

    torch.set_num_threads(1)
    weight = torch.randn(192, 192)
    with torch.no_grad(), record(out=folder, name=name, quick=True, active=steps) as recorder:
        for _ in range(steps + 8):
            result = weight
            for _ in range(products):
                result = torch.mm(result, weight)
            recorder.step()
    assert recorder.path is not None, recorder.problem
    return run_of(read(str(recorder.path), cache=False))


def measure(*, trials: int = 5, rounds: int = 12, steps: int = 12) -> dict[str, Any]:
    """`trials` gates, each on fresh recordings of the base, of the same again, and of 10 % more work."""
    budgets = parse_budgets({"step_time": {"max_increase": "4 %"}})
    each: list[dict[str, Any]] = []
    for trial in range(trials):
        runs: dict[str, list[Run]] = {"base": [], "same": [], "slower": []}
        with tempfile.TemporaryDirectory() as folder:
            for round_ in range(rounds):
                for arm, products in (("base", _PRODUCTS), ("same", _PRODUCTS), ("slower", round(_PRODUCTS * 1.1))):
                    runs[arm].append(_record(Path(folder), f"{arm}{trial}{round_}", products, steps))
        base = Arm("base", runs["base"])
        found = {arm: check(Arm(arm, runs[arm]), budgets, baseline=base).results[0] for arm in ("same", "slower")}
        each.append({arm: {"status": r.status, "low": r.low, "high": r.high} for arm, r in found.items()})
        print(json.dumps(each[-1]), file=sys.stderr, flush=True)
    counts = {arm: dict(Counter(trial[arm]["status"] for trial in each)) for arm in ("same", "slower")}
    return {
        "trials": trials,
        "rounds": rounds,
        "steps": steps,
        "allowed": 0.04,
        "planted": 0.1,
        "status": counts,
        "each": each,
    }
