"""`Plan`: what `optimize` found, to be applied, taken back, saved, and applied again elsewhere."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from lanewise.errors import LanewiseError, UsageError
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.gate.correctness import Correctness, patches_of
from lanewise.fix.model import PlanReport
from lanewise.fix.plans.fingerprint import differences, kinds_of, machine_of, structure_of
from lanewise.fix.plans.plan_sentence import plan_sentence
from lanewise.fix.plans.saved_plan import SAVED_SCHEMA, Saved, read_saved
from lanewise.fix.state import State
from lanewise.fix.subject import Subject, make_subject

__all__ = ["Plan", "combined", "load_plan"]


class Plan:
    """Proven changes to one program. Nothing is changed until `apply`.

        plan = lanewise.optimize(model, x)
        with plan:            # or plan.apply() ... plan.undo()
            model(x)

    Attributes:
        report: everything that was tried, as data.
        call: what to call. For a module it is the module itself; a function cannot be exchanged where it is used, so use
            `plan.call` in its place: it follows `apply` and `undo`.
    """

    def __init__(
        self,
        subject: Subject,
        report: PlanReport,
        parts: Sequence[tuple[Candidate, Variant]],
        *,
        allowed: Sequence[str] = (),
    ) -> None:
        self.report = report
        self.call: Any = subject.entry
        self._subject = subject
        self._parts = list(parts)
        self._allowed = list(allowed)
        self._whole = Several([variant for _, variant in parts])
        self._applied = False

    def __repr__(self) -> str:
        made = " + ".join(candidate.name for candidate, _ in self._parts) or "nothing"
        return f"<Plan for {self.report.subject}: {made}{', applied' if self._applied else ''}>"

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def applied(self) -> bool:
        """Whether the program is changed now."""
        return self._applied

    def apply(self) -> Plan:
        """Change the program. Applying twice is applying once."""
        if not self._applied:
            self._applied = True
            try:
                self._whole.enable()
            except BaseException:
                self.undo()
                raise
        return self

    def undo(self) -> None:
        """Change everything back: the program is as it was, whatever it has learned in between."""
        if self._applied:
            self._applied = False
            self._whole.disable()

    def __enter__(self) -> Plan:
        return self.apply()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def summary(self) -> str:
        """What came of it, one line per candidate that was tried (outcome, ratio with its interval, reason), and notes."""
        lines = [plan_sentence(self.report)]
        width = max((len(attempt.name) for attempt in self.report.attempts), default=0)
        for attempt in self.report.attempts:
            timing = attempt.timing
            ratio = f"{timing.ratio:.2f}x ({timing.low:.2f} to {timing.high:.2f})" if timing is not None else ""
            lines.append(f"{attempt.name:{width}}  {attempt.outcome:13} {ratio:23} {attempt.reason}".rstrip())
        lines += [f"note: {note}" for note in self.report.notes]
        return "\n".join(lines)

    def counts(self) -> dict[str, dict[str, int]]:
        """Per patched object: calls on the fast path (`fast`), and the others by the part of the guard that sent them to
        the original."""
        counted: dict[str, dict[str, int]] = {}
        for candidate, variant in self._parts:
            for at, patch in enumerate(patches_of(variant)):
                found = patch.dispatch
                counted[f"{candidate.name}" + (f" {at}" if at else "")] = {"fast": found.hits, **found.fallbacks}
        return counted

    def reset_counts(self) -> None:
        """Start counting calls anew."""
        for patch in patches_of(self._whole):
            patch.dispatch.hits = 0
            patch.dispatch.fallbacks.clear()

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the plan as JSON.

        Raises:
            UsageError: the file exists, and `force` is not given. LanewiseError: it cannot be written.
        """
        target = Path(path)
        if target.exists() and not force:
            raise UsageError(f"{target} exists; save(..., force=True) overwrites it")
        was = self._applied
        self.undo()
        try:
            saved = Saved(
                schema=SAVED_SCHEMA,
                applied=[candidate.name for candidate, _ in self._parts],
                allowed=self._allowed,
                structure=structure_of(self._subject),
                kinds=kinds_of(self._subject),
                machine=machine_of(self._subject),
                report=self.report,
            )
        finally:
            if was:
                self.apply()
        try:
            target.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=2))
        except OSError as error:
            raise LanewiseError(f"cannot write {target}: {error.strerror or error}") from None
        return target


def load_plan(path: str | os.PathLike[str], target: Any, example_inputs: Any) -> Plan:
    """A saved plan for a program, re-verified here: correctness is checked again, its time is taken from the file.

    Args:
        path: written by `Plan.save`.
        target, example_inputs: as for `optimize`.

    Raises:
        InputError: the file cannot be read, or holds something else.
        LanewiseError: the plan was made for another machine, other versions, another program or other calls, or its results
            are no longer right; the message says which.
    """
    from lanewise.fix.candidates.catalogue import catalogue
    from lanewise.fix.work.worklist import work_of

    saved = read_saved(path)
    subject = make_subject(target, example_inputs)
    name = Path(path).name
    if subject.kind != saved.report.kind:
        raise LanewiseError(f"{name} is a plan for {saved.report.kind}, this is {subject.kind}: optimize it again")
    if changed := differences(saved.machine, machine_of(subject)):
        raise LanewiseError(f"{name} was proven elsewhere ({'; '.join(changed)}): optimize again on this machine")
    if saved.structure != structure_of(subject):
        raise LanewiseError(
            f"{name} is a plan for another program: its modules or parameters differ; optimize this one"
        )
    kinds = kinds_of(subject)
    if strange := [kind for kind in kinds if kind not in saved.kinds]:
        what = "; ".join(differences(saved.kinds[0], strange[0])) if saved.kinds else "no calls"
        raise LanewiseError(f"{name} was proven for other calls ({what}): optimize with these inputs")
    if not saved.applied:
        return Plan(subject, saved.report, [], allowed=saved.allowed)
    state = State(subject)
    gate = Correctness(subject, state)
    known = {candidate.name: candidate for candidate in catalogue(subject, work_of(subject, state))}
    parts: list[tuple[Candidate, Variant]] = []
    for wanted in saved.applied:
        if wanted not in known:
            raise LanewiseError(f"{name} applies {wanted}, which does not apply here: optimize again")
        candidate = known[wanted]
        if candidate.refused_unless_allowed and wanted not in saved.allowed:
            raise LanewiseError(f"{name} applies {wanted}, which nobody allowed: {candidate.refused_unless_allowed}")
        variant = candidate.build(subject)
        result = _check_on_top(gate, candidate, parts, variant)
        if not result.passed:
            raise LanewiseError(f"{name} is refused: {wanted} no longer gives the right results ({result.reason})")
        parts.append((candidate, variant))
    plan = Plan(subject, saved.report, parts, allowed=saved.allowed)
    plan.reset_counts()
    return plan


def _check_on_top(
    gate: Correctness, candidate: Candidate, below: Sequence[tuple[Candidate, Variant]], top: Variant
) -> Any:
    whole = Several([*(variant for _, variant in below), top])
    return gate.check(combined([*(part for part, _ in below), candidate]), whole)


def combined(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate that several of them are together, as far as the gates look at one."""
    last = candidates[-1]
    changes = "; ".join(c.refused_unless_allowed for c in candidates if c.refused_unless_allowed)
    return dataclasses.replace(
        last,
        refused_unless_allowed=changes,
        precision=max(c.precision for c in candidates),
        drops_graph=any(c.drops_graph for c in candidates),
        refuses=tuple({name for c in candidates for name in c.refuses}),
    )
