"""Fits what recording costs the host (`lanewise.replay.undistort.Costs`) to recordings whose step was timed without it.

    python -m benchmarks.replay.fit TRACES [TRACES ...] [--truth TRUTH.json.gz] [--out RESULT.json]

TRACES are folders of recordings. The step without the profiler stands in the recording itself, as `lanewise run` leaves it,
or in TRUTH: a map from the recording's name to `{"unprofiled_us_per_step": ...}`; recordings without either are left out.
What the fit used must not be used to judge it: `benchmarks.replay.accuracy` does that on others.

The constants are moved one at a time, up and down, as long as the error falls. The error is the mean of |log(computed /
measured)|, where more than a factor of 1.5 counts as 1.5: a recording that is wrong for another reason must not pull them.
`spread` is what then holds 80 % of the recordings.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lanewise import __version__
from lanewise.measure.facts import Facts
from lanewise.measure.unprofiled import without_profiler
from lanewise.replay.undistort import COSTS, Costs
from lanewise.trace.file.folder import traces_in
from lanewise.trace.reader import read

__all__ = ["fit", "recordings"]

_FITTED = ("operator", "call", "frame", "step", "left", "latency")
_FACTORS = (1.25, 1.1)
_LARGEST_ERROR = np.log(1.5)
_SPREADS = np.arange(1.05, 2.0, 0.05)


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording, and what its step takes without the profiler, ns."""

    name: str
    facts: Facts
    measured_ns: float

    def ratio(self, costs: Costs) -> tuple[float, float, float]:
        """Computed step over the measured one, and the same for both ends of its interval."""
        step = without_profiler(
            self.facts.trace,
            self.facts.graph,
            device="",
            communicating=np.zeros(0, dtype=bool),
            timed_ns=None,
            slow=self.facts.slow,
            costs=costs,
        )
        return step.step_ns / self.measured_ns, step.low_ns / self.measured_ns, step.high_ns / self.measured_ns


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--truth", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    found = [each for folder in asked.traces for each in recordings(folder, _truth(asked.truth))]
    fitted = fit(found)
    result = {
        "what": "what recording costs the host, fitted; ns, or a share",
        "lanewise": __version__,
        "recordings": [each.name for each in found],
        "in_lanewise": _judged(found, COSTS),
        "fitted": _judged(found, fitted),
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if asked.out is not None:
        asked.out.write_text(text)
    return 0


def recordings(folder: Path, truth: dict[str, Any]) -> list[Recording]:
    """The recordings of a folder of which the step without the profiler is known, by name."""
    result = []
    for path in sorted(traces_in(folder, every=True)):
        name = path.name.removesuffix(".gz").removesuffix(".json")
        trace = read(path, cache=False)
        # One step is no run that could be replayed.
        if len(trace.steps) < 2:
            continue
        facts = Facts(trace)
        known = truth.get(name, {}).get("unprofiled_us_per_step")
        measured = known * 1e3 if known else facts.unprofiled_ns
        if measured and len(facts.graph):
            result.append(Recording(name, facts, float(measured)))
    return result


def fit(found: list[Recording], start: Costs = COSTS) -> Costs:
    """The constants with the least error on these recordings, from a start that is near."""
    best, error = start, _error(found, start)
    for factor in _FACTORS:
        moved = True
        while moved:
            moved = False
            for name in _FITTED:
                for by in (factor, 1 / factor):
                    tried = replace(best, **{name: getattr(best, name) * by})
                    if max(tried.left, tried.latency) <= 1 and (now := _error(found, tried)) < error - 1e-4:
                        best, error, moved = tried, now, True
    rounded = {name: float(f"{getattr(best, name):.2g}") for name in _FITTED}
    best = replace(best, **rounded)
    return replace(best, spread=_spread(found, best))


def _spread(found: list[Recording], costs: Costs) -> float:
    for spread in _SPREADS.tolist():
        if _holds(found, replace(costs, spread=spread)) >= 0.8:
            break
    return round(spread, 2)


def _holds(found: list[Recording], costs: Costs) -> float:
    ends = np.array([each.ratio(costs)[1:] for each in found])
    return float(np.mean((ends[:, 0] <= 1) & (ends[:, 1] >= 1)))


def _error(found: list[Recording], costs: Costs) -> float:
    return float(np.mean(np.minimum(np.abs(_logs(found, costs)), _LARGEST_ERROR)))


def _logs(found: list[Recording], costs: Costs) -> np.ndarray:
    return np.log([each.ratio(costs)[0] for each in found])


def _judged(found: list[Recording], costs: Costs) -> dict[str, Any]:
    off = np.abs(np.exp(_logs(found, costs)) - 1)
    return {
        "costs": asdict(costs),
        "error": round(_error(found, costs), 4),
        "median_error": round(float(np.median(off)), 4),
        "within_20_percent": round(float(np.mean(off < 0.2)), 4),
        "interval_holds": round(_holds(found, costs), 4),
    }


def _truth(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    opened = gzip.open(path) if path.suffix == ".gz" else path.open("rb")
    with opened as file:
        return dict(json.load(file))


if __name__ == "__main__":
    raise SystemExit(main())
