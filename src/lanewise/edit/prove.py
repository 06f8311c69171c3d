"""A program with and without its edits, recorded in turns, in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lanewise.compare.diff import diff
from lanewise.compare.model import Comparison
from lanewise.compare.outcome.verdict import step_sentence
from lanewise.compare.sides.arm import ENOUGH_RUNS
from lanewise.diagnose.explain import facts_of
from lanewise.diagnose.settings import load_settings
from lanewise.diagnose.what_if.predict import predict_answers
from lanewise.edit.left_over import beside
from lanewise.edit.printed import compare_printed
from lanewise.edit.source_text import Source, write_source
from lanewise.errors import LanewiseError, UsageError
from lanewise.report.prediction import Prediction
from lanewise.report.quantity import format_quantity
from lanewise.trace.reader import opened

__all__ = [
    "EditedProgramError",
    "Proof",
    "TooFewStepsError",
    "last_words",
    "prints_the_same",
    "prove",
    "record_once",
    "run_once",
]

_LONGEST_S = 3600
_NOTHING = "nothing was recorded"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Failed)(?::|$)")


class TooFewStepsError(LanewiseError):
    """A program ended before recording began; there is a quick way for as many steps as it has."""


class EditedProgramError(LanewiseError):
    """A program fails with the edits."""


class Proof(NamedTuple):
    """What recording both showed.

    Attributes:
        comparison: of the recordings. same_output: whether both printed the same, up to rounding.
        output: what differs, for a reader; "" where nothing does, or where that cannot be told.
        steady: whether the program as it was printed the same in each of its runs. before: what it printed, run by run.
        predicted: what the first recording without the edits predicted of them; None where it finds nothing of what they
            answer.
    """

    comparison: Comparison
    same_output: bool
    output: str
    steady: bool = True
    before: tuple[str, ...] = ()
    predicted: Prediction | None = None

    @property
    def predicted_beside_measured(self) -> str:
        """The step that was predicted beside the one that was measured, both with the edits; "" without a prediction."""
        if self.predicted is None:
            return ""
        step, now = self.predicted.predicted, self.comparison.others[0]
        told, low, high = (format_quantity("time", us * 1e3) for us in (step.step_us, step.low_us, step.high_us))
        codes = " and ".join(one.change for one in self.predicted.changes)
        measured = format_quantity("time", now.step_ns)
        return f"predicted with {codes} fixed: {told} per step ({low} to {high}); measured: {measured}"

    @property
    def saved_us(self) -> float:
        """How much shorter a step is with the edits, us."""
        return (self.comparison.base.step_ns - self.comparison.others[0].step_ns) / 1e3

    @property
    def printed(self) -> str:
        """What there is to say about what both printed."""
        if self.same_output:
            return "it prints the same" + ("" if self.steady else ", apart from what changes from run to run anyway")
        if not self.changes_output:
            return "it prints something else in every run, without the edits too: give it a seed to compare that"
        return f"it prints something else: {self.output}"

    @property
    def unsure(self) -> str:
        """What is not known of the step time; "" where it is known which is faster, or that neither is."""
        if self.verdict != "not enough samples":
            return ""
        runs = self.comparison.base.runs
        return f"whether it is faster is not certain after {runs} run{'s' * (runs > 1)} of each"

    @property
    def changes_output(self) -> bool:
        """Whether the edits are known to change what is printed."""
        return not self.same_output and bool(self.output)

    @property
    def verdict(self) -> str:
        """On the step time; a word of `compare.statistics`."""
        return self.comparison.differences[0].step.verdict


def prove(
    script: Path,
    edited: Source,
    arguments: Sequence[str],
    folder: Path,
    *,
    runs: int,
    most: int = 0,
    tell: Callable[[str], None],
    answers: Collection[str] = (),
) -> Proof:
    """Run both several times, in turns, and compare their recordings.

    The edited program is written beside the script for as long as it runs, so that it finds the same files and modules.
    Which of the two goes first changes from turn to turn: what gets slower or faster with time favours neither.

    Args:
        folder: for the recordings. runs: of each side; with four and more the verdict knows how much runs differ.
        most: how many of each side there may be if `runs` cannot tell the step times apart.
        answers: codes of the findings that the edits answer: what mending these would give is predicted, too.

    Raises:
        EditedProgramError: the edited program fails. LanewiseError: the program itself does, nothing could be recorded of
            it, nothing can be written beside the script, or what was recorded cannot be compared.
    """
    copy = beside(script)
    outputs: dict[str, list[str]] = {"before": [], "after": []}
    quick = False
    sides = {"before": script, "after": copy}

    def turn(number: int, of: int) -> None:
        nonlocal quick
        for side in sides if number % 2 == 0 else reversed(sides):
            program = sides[side]
            tell(f"recording {side}, run {number + 1} of {of}")
            name = f"{side}{number}"
            try:
                said = record_once(program, arguments, folder / side, name, quick=quick)
            except TooFewStepsError as error:
                if quick or outputs["before"]:
                    raise
                tell(f"{error}: recording the first steps")
                quick = True
                said = record_once(program, arguments, folder / side, name, quick=quick)
            outputs[side].append(said.replace(program.name, script.name))

    try:
        write_source(copy, *edited)
        for number in range(runs):
            turn(number, runs)
        comparison = _compared(folder)
        if most > runs and comparison.differences[0].step.verdict == "not enough samples":
            tell(f"{runs} runs of each cannot tell which is faster: {most - runs} more")
            for number in range(runs, most):
                turn(number, most)
            comparison = _compared(folder)
        printed = compare_printed(outputs["before"], outputs["after"])
        if not printed.same and len(outputs["before"]) == 1:
            tell("it printed something else: running it once more without the edits, to see whether it always does")
            outputs["before"].append(run_once(script, arguments))
            printed = compare_printed(outputs["before"], outputs["after"])
    finally:
        copy.unlink(missing_ok=True)
    return Proof(
        _as_sure_as(comparison, runs),
        printed.same,
        printed.difference,
        printed.steady,
        tuple(outputs["before"]),
        _predicted(folder / "before", answers),
    )


def _compared(folder: Path) -> Comparison:
    try:
        return diff(folder / "before", folder / "after", labels=("before", "after"))
    except UsageError as error:
        why = str(error).partition(". ")[0]  # what follows is an option of another command
        raise LanewiseError(f"the recordings with and without the edits say nothing of each other: {why}") from None


def _predicted(folder: Path, answers: Collection[str]) -> Prediction | None:
    """What the first recording in a folder predicts of edits that answer some findings."""
    recordings = sorted(folder.glob("*.json.gz"))
    if not recordings or not answers:
        return None
    return predict_answers(facts_of(opened(recordings[0])), answers, load_settings())


def record_once(program: Path, arguments: Sequence[str], folder: Path, name: str, *, quick: bool = False) -> str:
    """Record one run into a folder; what the program printed.

    Args:
        quick: as of `lanewise run`: for programs with few steps.

    Raises:
        TooFewStepsError: it ended before recording began. LanewiseError: it fails, or records nothing for another reason.
    """
    ours = [sys.executable, "-m", "lanewise", "run", "--no-explain", "-o", str(folder.absolute()), "--name", name]
    words = [*ours, *(["--quick"] if quick else []), str(program), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_LONGEST_S, check=False)
    which = _which(program)
    if done.returncode != 0:
        raise _failed(program)(f"{which} ends with exit code {done.returncode}: {last_words(done.stderr)}")
    if not any(folder.glob(f"{name}*.json.gz")):
        lines = [line for line in done.stderr.splitlines() if _NOTHING in line]
        why = lines[0].partition(_NOTHING)[2].strip(": ") if lines else ""
        kind = TooFewStepsError if "--quick" in why else LanewiseError
        why = why.partition("; ")[0]  # what follows are options of another command
        raise kind(f"nothing could be recorded of {which}" + (f": {why[:200]}" if why else ""))
    return done.stdout


def last_words(errors: str) -> str:
    """Why a recorded program failed, from what it wrote to standard error: its exception, or its last line."""
    said = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("lanewise: ")]
    exceptions = [line for line in said if _EXCEPTION.match(line)]
    return (exceptions or said or ["no message"])[-1][:200]


def run_once(program: Path, arguments: Sequence[str]) -> str:
    """Run a program without recording it; what it printed. Raises LanewiseError if it fails."""
    words = [sys.executable, str(program), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_LONGEST_S, check=False)
    if done.returncode != 0:
        raise _failed(program)(f"{_which(program)} ends with exit code {done.returncode}: {last_words(done.stderr)}")
    return done.stdout


def prints_the_same(script: Path, edited: Source, arguments: Sequence[str], known: list[str]) -> bool:
    """Whether a program with edits runs, and prints what it prints without them.

    `known`: what that is; where it is empty, the program is run for it. Raises LanewiseError if it fails by itself.
    """
    if not known:
        known.append(run_once(script, arguments))
    copy = beside(script)
    try:
        write_source(copy, *edited)
        return compare_printed(known, [run_once(copy, arguments).replace(copy.name, script.name)]).same
    except EditedProgramError:
        return False
    finally:
        copy.unlink(missing_ok=True)


def _failed(program: Path) -> type[LanewiseError]:
    return EditedProgramError if program.name.startswith(".") else LanewiseError


def _which(program: Path) -> str:
    return "the edited program" if program.name.startswith(".") else "the program"


def _as_sure_as(comparison: Comparison, runs: int) -> Comparison:
    """Without what one run per side cannot know: how much runs differ."""
    if runs > 1:
        return comparison
    (difference,) = comparison.differences
    step = msgspec.structs.replace(
        difference.step, verdict="not enough samples", low=None, high=None, p=None, mde=None, unit="runs",
        a_count=1, b_count=1, further=ENOUGH_RUNS, further_unit="runs",
    )  # fmt: skip
    text = difference.verdict.replace(step_sentence(difference.step), step_sentence(step))
    return msgspec.structs.replace(
        comparison, differences=[msgspec.structs.replace(difference, step=step, verdict=text)]
    )
