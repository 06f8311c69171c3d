"""Jobs made from summaries of real ranks, with a cause planted in one of them and without: who is said to be late, and why.

python -m benchmarks.ranks.made TRACE... --planted 500 --healthy 400 -o made.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.planted_ranks import healthy, plant

from lanewise.diagnose.sections.rank_causes import cause_of, main_cause
from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import RankSummary, summarise
from lanewise.trace.reader import read

_CLOSE = 0.15


def planted_jobs(models: Sequence[RankSummary], count: int, seed: int) -> dict[str, Any]:
    """How many of them are read right, and by how much the delay is off."""
    random = np.random.default_rng(seed)
    right, close = 0, 0
    missed: list[str] = []
    for _ in range(count):
        ranks, planted = plant(healthy(models, int(random.integers(2, 17)), random), random)
        late = compare_ranks(ranks).late
        said = [(one.index, cause_of(main_cause(one)[0])) for one in late]
        if said == [(planted.rank, planted.cause)]:
            right += 1
            close += abs(late[0].more_ns / planted.ns - 1) <= _CLOSE
        else:
            missed.append(
                f"{planted.cause} of {planted.ns / 1e6:.2f} ms in rank {planted.rank} of {len(ranks)}: {said}"
            )
    return {"seed": seed, "jobs": count, "rank and cause right": right, "delay within 15 %": close, "missed": missed}


def healthy_jobs(models: Sequence[RankSummary], count: int, seed: int) -> dict[str, Any]:
    """In how many a rank is said to be late."""
    random = np.random.default_rng(seed)
    jobs = (compare_ranks(healthy(models, int(random.integers(2, 17)), random)) for _ in range(count))
    return {"seed": seed, "jobs": count, "alarms": sum(bool(one.late) for one in jobs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, help="ranks of a healthy job")
    parser.add_argument("--planted", type=int, default=500)
    parser.add_argument("--healthy", type=int, default=400)
    parser.add_argument("--seeds", default="23,2024,7", help="of the healthy jobs, with commas between them")
    parser.add_argument("-o", "--output", type=Path, default=Path("made-ranks.json"))
    args = parser.parse_args()
    ranks = [summarise(Core(read(path, cache=False))) for path in args.traces]
    # Of kernels that all ran beside a collective it is not known what they take by themselves.
    models = [one for one in ranks if not any(context.shared for context in one.contexts)]
    results = {
        "planted": planted_jobs(models, args.planted, 22),
        "healthy": [healthy_jobs(models, args.healthy, int(seed)) for seed in args.seeds.split(",")],
    }
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
