"""False alarms: two recordings of the same program, each in a process of its own, must differ in nothing.

A pair is an alarm if the comparison reports other work, or a time as faster or slower (the step's or an op's).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.compare.record_one import record_one
from benchmarks.fresh import call

_RECORDED_ON = ("card", "clocks.driver", "versions.torch", "versions.python", "host.cores_allowed", "host.load")

PROGRAMS = ("mlp", "attention", "train")


def measure(pairs: int, keep: Path | None = None) -> dict[str, Any]:
    """Record and compare `pairs` pairs, the programs in turn.

    Args:
        keep: folder of the recordings; pairs that it holds already are compared again and not recorded.
    """
    found: list[dict[str, Any]] = []
    environments: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folders = [(keep or Path(temporary)) / f"{pair:02}" for pair in range(pairs)]
        for pair, folder in enumerate(folders):
            folder.mkdir(parents=True, exist_ok=True)
            while len(list(folder.glob("*.json.gz"))) < 2:
                program, out = PROGRAMS[pair % len(PROGRAMS)], str(folder)
                answer = call(lambda program=program, out=out: record_one(program, out), seconds=120)
                if "error" in answer:
                    raise SystemExit(f"{program}: {answer['error']}")
        # Threads of what compares must not be there while processes are forked.
        from lanewise.compare.diff import diff

        for pair, folder in enumerate(folders):
            a, b = sorted(folder.glob("*.json.gz"))
            compared = diff(a, b, labels=["first", "second"])
            environments.append(compared.base.environment)
            difference = compared.differences[0]
            timed = [c for c in difference.device if c.ratio is not None and c.ratio.verdict in {"faster", "slower"}]
            found.append(
                {
                    "program": PROGRAMS[pair % len(PROGRAMS)],
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
        "recorded_on": {key: value for key, value in environments[0].items() if key in _RECORDED_ON},
        "without_alarm": quiet,
        "step_verdicts": dict(Counter(p["step"] for p in found)),
        "each": found,
    }
