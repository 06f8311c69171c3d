"""Compares what the tool says about labelled recordings with their labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.diagnosis.labels import LABELS, Label

from lanewise.diagnose.explain import explain
from lanewise.report.gain import helps
from lanewise.report.model import Finding, Report
from lanewise.trace.reader import read

RECORDINGS = Path(__file__).resolve().parents[2] / "tests" / "data" / "twins"

__all__ = ["RECORDINGS", "Score", "Verdict", "judge", "judge_all", "score"]

_DESCRIBING = ("MEA", "REG", "KER101", "KER103")
"""Codes that describe a recording rather than find a fault: how it was taken, its regime, its largest kernel, and what
already runs at the card's speed."""


_NOISE = 0.15
"""Two recordings of one program, a process each, differ by so much in their un-profiled step time on a quiet machine."""


@dataclass(frozen=True)
class Verdict:
    """One recording beside its label.

    Attributes:
        label: what is right.
        regime: what the tool said.
        first: the code that leads the problems, "" if none.
        said: codes of the problems that ask for something, best first.
        wrong: those that the label does not allow.
        missing: codes that the label demands and the report lacks.
        stated_us, measured_us: what the defect's finding promises per step as an upper bound, and what the fixed
            program takes less, both without the profiler; None where there is no fixed program or no such finding.
    """

    label: Label
    regime: str
    first: str
    said: tuple[str, ...]
    wrong: tuple[str, ...]
    missing: tuple[str, ...]
    stated_us: float | None
    measured_us: float | None

    @property
    def right_regime(self) -> bool:
        """Whether the regime is one that the label names; regimes are separated by spaces."""
        return self.regime in self.label.regime.split()

    @property
    def right_first(self) -> bool:
        """Whether the defect comes first, or nothing unasked for where there is none."""
        return self.first in self.label.first.split() if self.label.first else not self.wrong

    @property
    def bound_holds(self) -> bool | None:
        """Whether the fix gave back no more than was promised, within the noise; None if that cannot be said."""
        if self.stated_us is None or self.measured_us is None:
            return None
        return self.measured_us <= self.stated_us * (1 + _NOISE)


@dataclass(frozen=True)
class Score:
    """Shares over all recordings; each as a count and what it is a count of."""

    recordings: int
    regimes: int
    bad: int
    bad_first: int
    good: int
    good_silent: int
    said: int
    said_wrong: int
    demanded: int
    demanded_missing: int
    bounds: int
    bounds_held: int

    @property
    def precision(self) -> float:
        """Share of what was said that is right."""
        return _share(self.said - self.said_wrong, self.said)

    @property
    def recall(self) -> float:
        """Share of what had to be said that was."""
        return _share(self.demanded - self.demanded_missing, self.demanded)

    @property
    def top_1(self) -> float:
        """Share of the programs with a defect whose first finding is that defect."""
        return _share(self.bad_first, self.bad)


def report_of(path: Path) -> Report:
    """What the tool says of a recording."""
    return explain(read(path, cache=False))


def judge_all(
    folder: Path = RECORDINGS, labels: Iterable[Label] = LABELS, report_of: Callable[[Path], Report] = report_of
) -> list[Verdict]:
    """Every labelled recording, explained and judged."""
    labels = list(labels)
    reports = {label.name: report_of(folder / f"{label.name}.json.gz") for label in labels}
    return [judge(label, reports[label.name], reports.get(label.fixed)) for label in labels]


def judge(label: Label, report: Report, fixed: Report | None) -> Verdict:
    """One report beside its label, and beside the report of the program without the defect."""
    asking = [finding for finding in report.findings if _asks(finding)]
    allowed = {*label.first.split(), *label.must.split(), *label.may.split()}
    if "host" in label.regime or "mixed" in label.regime:
        # Says where the host's time goes where nothing names a cause: no defect is claimed.
        allowed.add("LAU111")
    present = {finding.code for finding in report.findings}
    wanted = label.first.split()
    absent = [] if not wanted or present.intersection(wanted) else [label.first]
    # A statement promises nothing.
    defect = next((f for f in report.findings if f.code in wanted and f.kind == "problem"), None)
    return Verdict(
        label=label,
        regime=report.regime.name,
        first=asking[0].code if asking else "",
        said=tuple(finding.code for finding in asking),
        wrong=tuple(finding.code for finding in asking if finding.code not in allowed),
        missing=(*absent, *(code for code in label.must.split() if code not in present)),
        stated_us=defect.recoverable_us_per_step if defect is not None and fixed is not None else None,
        measured_us=_gain_us(report, fixed) if fixed is not None else None,
    )


def score(verdicts: list[Verdict]) -> Score:
    """All verdicts, counted."""
    bad = [verdict for verdict in verdicts if verdict.label.first]
    good = [verdict for verdict in verdicts if not verdict.label.first]
    bounds = [verdict.bound_holds for verdict in bad if verdict.bound_holds is not None]
    return Score(
        recordings=len(verdicts),
        regimes=sum(verdict.right_regime for verdict in verdicts),
        bad=len(bad),
        bad_first=sum(verdict.right_first for verdict in bad),
        good=len(good),
        good_silent=sum(verdict.right_first for verdict in good),
        said=sum(len(verdict.said) for verdict in verdicts),
        said_wrong=sum(len(verdict.wrong) for verdict in verdicts),
        demanded=sum(bool(verdict.label.first) + len(verdict.label.must.split()) for verdict in verdicts),
        demanded_missing=sum(len(verdict.missing) for verdict in verdicts),
        bounds=len(bounds),
        bounds_held=sum(bounds),
    )


def _asks(finding: Finding) -> bool:
    """Whether a finding tells the user to change something, here and now."""
    return (helps(finding) or finding.kind == "statement") and not finding.code.startswith(_DESCRIBING)


def _gain_us(before: Report, after: Report) -> float | None:
    measured = before.regime.unprofiled and after.regime.unprofiled
    return before.regime.step_us - after.regime.step_us if measured else None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
