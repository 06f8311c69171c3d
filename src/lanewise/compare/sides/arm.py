"""`Arm`: one side of a comparison, recorded once or several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from lanewise.compare.model import SideSummary
from lanewise.compare.sides.run import Run
from lanewise.compare.sides.step_work import Work
from lanewise.compare.statistics import log_spread

__all__ = ["ENOUGH_RUNS", "Arm", "paired", "short_labels"]

# Spread between processes that run the same program, as a standard deviation of the logarithm: measured on our hosts
# (docs/compare.md). It matters where a side has too few runs to show its own.
_HOST_NOISE, _DEVICE_NOISE = 0.20, 0.04

ENOUGH_RUNS = 4
"""From this many runs per side on, the runs themselves show how much they differ."""


@dataclass(frozen=True, eq=False)
class Arm:
    """Recordings of one program.

    Attributes:
        label: how it is called in the output; untrusted.
        runs: at least one.
    """

    label: str
    runs: Sequence[Run]

    @cached_property
    def typical(self) -> Run:
        """The run that stands for the others: the first of those with the most common sequence of work."""
        signatures = [_signature(run.work) for run in self.runs]
        most = Counter(signatures).most_common(1)[0][0]
        return self.runs[signatures.index(most)]

    @cached_property
    def alike(self) -> list[Run]:
        """Runs whose typical step has the same work in the same order."""
        wanted = _signature(self.typical.work)
        return [run for run in self.runs if _signature(run.work) == wanted]

    @property
    def unprofiled(self) -> bool:
        """Whether the step times are those without the profiler, in every run."""
        return all(run.unprofiled for run in self.runs)

    @property
    def step_ns(self) -> float:
        """Median step time over the runs, ns."""
        return float(np.median([run.step_ns if self.unprofiled else _recorded(run) for run in self.runs]))

    @property
    def recorded_step_ns(self) -> float:
        """Median recorded period over the runs, ns."""
        return float(np.median([_recorded(run) for run in self.runs]))

    @cached_property
    def classes(self) -> dict[str, float]:
        """Time per class, ns; the mean of the runs, on the scale of the step time. Empty without device work."""
        runs = [run for run in self.runs if run.classes]
        if len(runs) < 2:
            return self.typical.classes
        scale = self.step_ns / float(np.mean([run.step_ns for run in runs]))
        return {name: scale * float(np.mean([run.classes.get(name, 0.0) for run in runs])) for name in runs[0].classes}

    def step_rounds(self, *, unprofiled: bool) -> list[np.ndarray]:
        """Step times of each run, ns: samples without the profiler (or their median alone), or recorded periods."""
        if not unprofiled:
            return [run.sample_ns for run in self.runs if len(run.sample_ns)]
        return [run.samples if len(run.samples) else np.array([run.step_ns]) for run in self.runs]

    def work_rounds(self, positions: Sequence[int]) -> list[np.ndarray]:
        """Time of some positions of the typical step, added up: per run one value per step, ns."""
        rows = list(positions)
        return [run.work.duration[:, rows].sum(axis=1) for run in self.alike]

    @property
    def between(self) -> float:
        """What the runs cannot show of the spread between processes: standard deviation of the log of the step time."""
        return self.unseen(self.noise)

    @property
    def noise(self) -> float:
        """Spread between processes to expect of such a run, as standard deviation of the log.

        What is known of our host, where the host's share varies most; or the spread of single steps, if that is more: a
        machine that is busy with something else treats neither steps nor runs alike.
        """
        total = sum(self.classes.values())
        host = self.classes.get("host", 0.0) / total if total else 1.0
        known = host * _HOST_NOISE + (1 - host) * _DEVICE_NOISE
        steps = log_spread(self.step_rounds(unprofiled=self.unprofiled))
        return max(known, steps, *(run.spread for run in self.runs))

    @property
    def device_between(self) -> float:
        """The same for a single kernel (or, without a device, operator)."""
        noise = _DEVICE_NOISE if self.typical.work.device else _HOST_NOISE
        return self.unseen(noise)

    def unseen(self, noise: float) -> float:
        """What of a spread between runs the runs cannot show: none of it where there are enough."""
        return 0.0 if len(self.runs) >= ENOUGH_RUNS else noise / float(np.sqrt(len(self.runs)))

    def summary(self) -> SideSummary:
        """The side as data."""
        run = self.typical
        return SideSummary(
            label=self.label,
            sources=[r.source for r in self.runs],
            runs=len(self.runs),
            steps=run.steps,
            steady=run.steady,
            step_source=run.step_source,
            step_ns=self.step_ns,
            recorded_step_ns=self.recorded_step_ns,
            unprofiled=self.unprofiled,
            device_ns=run.device_ns,
            on_device=run.work.device,
            busy_share=run.busy_share,
            regime=run.regime,
            classes=self.classes,
            compiled=run.compiled,
            graphs=run.graphs,
            environment=run.environment,
        )


def paired(a: Arm, b: Arm) -> bool:
    """Whether the recordings alternate in time, so that drift that both sides share cancels."""
    if len(a.runs) != len(b.runs) or len(a.runs) < 2 or not all(run.recorded_at for run in (*a.runs, *b.runs)):
        return False
    rounds = zip(sorted(r.recorded_at for r in a.runs), sorted(r.recorded_at for r in b.runs), strict=True)
    bounds = [(min(pair), max(pair)) for pair in rounds]
    return all(before[1] < after[0] for before, after in pairwise(bounds))


def short_labels(labels: Sequence[str]) -> list[str]:
    """Labels without the words that all begin or end with; unchanged where nothing distinctive would be left."""
    words = [label.replace("-", "_").split("_") for label in labels]
    while all(len(w) > 1 for w in words) and len({w[0] for w in words}) == 1:
        words = [w[1:] for w in words]
    while all(len(w) > 1 for w in words) and len({w[-1] for w in words}) == 1:
        words = [w[:-1] for w in words]
    short = ["_".join(w) for w in words]
    telling = all(any(c.isalpha() for c in label) for label in short)
    return short if telling and len(set(short)) == len(short) else list(labels)


def _recorded(run: Run) -> float:
    return float(np.median(run.sample_ns)) if len(run.sample_ns) else run.step_ns


def _signature(work: Work) -> tuple[object, ...]:
    return (*work.ops, work.at.tobytes())
