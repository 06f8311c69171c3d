"""The correctness gate: what a program computes with a candidate, against what it computes without, and the truth.

No candidate is timed before it has passed. The rules (docs/fix.md lists them):

C1 values        against double precision, on the recorded calls and on adversarial ones
C2 evidence      fresh results each time, nothing left over from memory, the same twice, inputs and buffers as before
C3 gradients     of inputs and parameters, for gradients from above of any layout
C4 edges         other shapes, strides and modes reach the original program
C5 many steps    a training step is run several times: losses and parameters stay within what rounding explains
C6 afterwards    C1 and C2 once more when the timing is done
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from lanewise.errors import UsageError
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.gate.declared_precision import declared_precision
from lanewise.fix.gate.edges import Edges
from lanewise.fix.gate.inputs import Named, adversarial, has_floats, shaken
from lanewise.fix.gate.observe import Observation, compare_form, observe, why_not_the_same
from lanewise.fix.gate.reference import Reference, Truth, make_reference
from lanewise.fix.gate.tolerances import Error, allowed, error_of, other_masks, rounded, worst
from lanewise.fix.gate.training_steps import StepCheck
from lanewise.fix.gate.work_evidence import check_evidence
from lanewise.fix.model import Check, NumericClass
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import same_bits, tensors_of, values_of, why_not_comparable

__all__ = ["Correctness", "Result", "patches_of"]

_LAYOUTS = ("contiguous", "expanded", "transposed")
_MOST_SEEDS = 5


class Case(NamedTuple):
    """A call with what the original program makes of it, and the truth."""

    named: Named
    layout: str
    eager: Observation
    truth: Truth


class Result(NamedTuple):
    """What the gate found: whether it passed, in which class, and every check that was made."""

    passed: bool
    numeric_class: NumericClass
    checks: list[Check]

    @property
    def reason(self) -> str:
        """The first check that failed."""
        return next((f"{check.rule}: {check.detail}" for check in self.checks if not check.passed), "")


class Correctness:
    """The gate for one subject; the original's results are computed once.

    Args:
        subject: unpatched.
        seconds: that preparing the cases may take: more time means more seeds, never fewer kinds of input.
    """

    def __init__(self, subject: Subject, state: State, *, seconds: float = 10.0) -> None:
        self.subject = subject
        self._state = state
        self._declared = declared_precision(subject)
        subject.random = self._draws()
        self._steps = StepCheck(subject, state) if subject.kind == "step" else None
        self.reference: Reference | None = None if self._steps else make_reference(subject, state)
        self._room: dict[tuple[str, str], Error] = {}
        self._cases: list[Case] = [] if self._steps else self._prepare(seconds)
        self._edges: Edges | None = None
        if self.reference is not None:
            self._edges = Edges(subject, state, self.reference, self._recorded_room, self._declared)

    @property
    def what(self) -> str:
        """How the truth is known, for the report."""
        return self._steps.what if self._steps else self.reference.what if self.reference else ""

    @property
    def cases(self) -> int:
        """Calls that every candidate is checked with."""
        return len(self._cases)

    def apart(self, at: int, precision: float = 0.0) -> float:
        """How far an output may be from another right one, as share of its largest value: each may be off by what passes.

        Args:
            at: its number. precision: unit roundoff of arithmetic that was allowed on purpose.
        """
        if not self._cases:
            return 0.0
        named = dict(self._cases[0].eager.values())
        limit = allowed(
            self._recorded_room(f"output {at}"), named[f"output {at}"].dtype, precision=max(precision, self._declared)
        )
        return 2 * limit.largest

    def check(self, candidate: Candidate, variant: Variant, *, again: bool = False) -> Result:
        """Check a candidate; `again`: the shorter form after timing (C6)."""
        variant.enable()
        try:
            found = self._check(candidate, variant, again)
            return found._replace(checks=[_afterwards(check) for check in found.checks]) if again else found
        finally:
            variant.disable()
            self._state.restore()

    def _check(self, candidate: Candidate, variant: Variant, again: bool) -> Result:
        patches = patches_of(variant)
        if self._steps is not None:
            _learn(patches, True)
            check, exact = self._steps.check()
            _learn(patches, False)
            return Result(check.passed, _class([check], exact, candidate), [check])
        recorded = len(self.subject.calls)
        cases = self._cases[: recorded + 2] if again else self._cases
        checks: list[Check] = []
        exact = True
        worst = 0.0
        for at, case in enumerate(cases):
            _learn(patches, at < recorded)
            problem, same, share = self._one(candidate, case)
            exact, worst = exact and same, max(worst, share)
            if problem:
                rule = "C3 gradients" if "gradient" in problem else "C1 values"
                checks.append(Check(rule, False, f"{case.named.name}: {problem}"))
                return Result(False, "changes semantics", checks)
        _learn(patches, False)
        what = "equal in every bit" if exact else f"error at most {100 * worst:.0f} % of what passes"
        checks.append(Check("C1 values", True, f"{len(cases)} calls, {what}"))
        if self.subject.kind == "training":
            checks.append(Check("C3 gradients", True, f"of {len(cases[0].eager.gradients)} tensors, in every call"))
        found = check_evidence(
            self.subject, self._state, self._cases[0].eager, self._recorded_room, brief=again, precision=self._declared
        )
        if not again and not candidate.refused_unless_allowed:
            assert self._edges is not None
            found += self._edges.check(variant)
        checks += found
        return Result(all(check.passed for check in checks), _class(checks, exact, candidate), checks)

    def _one(self, candidate: Candidate, case: Case) -> tuple[str, bool, float]:
        """The first problem of one case ("" if none), whether all bits agree, and the worst error as share of its limit."""
        found = observe(self.subject, case.named.call, self._state, layout=case.layout)
        if problem := _form_problem(candidate, case.eager, found):
            return problem, False, 0.0
        truth = dict(case.truth.values())
        exact, worst = True, 0.0
        for (name, value), (_, eager) in zip(found.values(), case.eager.values(), strict=True):
            if value.dtype == eager.dtype and same_bits(value, eager):
                continue
            exact = False
            reference = truth.get(name, eager)
            if not value.dtype.is_floating_point:
                return f"{name} differs in {int((value != eager).sum())} of {value.numel()} elements", False, 0.0
            if masks := other_masks(value, eager, reference):
                return f"{name} has NaN or infinity elsewhere ({masks} elements)", False, 0.0
            error = error_of(value, reference)
            limit = allowed(
                self._room.get((_recipe(case), name), Error(0.0, 0.0)),
                eager.dtype,
                precision=max(candidate.precision, self._declared),
            )
            if not error.within(limit):
                return (
                    f"{name} is off by {error.largest:.2g} of its largest value and {error.norm:.2g} in norm, "
                    f"where {limit.largest:.2g} and {limit.norm:.2g} pass",
                    False,
                    0.0,
                )
            shares = (e / bound for e, bound in zip(error, limit, strict=True) if bound)
            worst = max([worst, *shares])
        return "", exact, worst

    def _prepare(self, seconds: float) -> list[Case]:
        assert self.reference is not None
        began = time.monotonic()
        named = [Named(f"recorded call {at}", call) for at, call in enumerate(self.subject.calls)]
        cases = [self._case(one, "contiguous") for one in named]
        layouts = _LAYOUTS[1:] if self.subject.kind == "training" else ()
        cases += [self._case(Named(f"recorded call 0, {layout} gradient", named[0].call), layout) for layout in layouts]
        others = adversarial(self.subject.calls[0], seeds=_MOST_SEEDS)
        a_seed = len(others) // _MOST_SEEDS
        for at, one in enumerate(others):
            # The first seed is always tried with every recipe.
            if at >= a_seed and time.monotonic() - began > seconds:
                break
            try:
                cases.append(self._case(one, "contiguous"))
            except Exception:  # the original program does not take such values, and need not
                self._state.restore()
        return cases

    def _case(self, named: Named, layout: str) -> Case:
        assert self.reference is not None
        eager = observe(self.subject, named.call, self._state, layout=layout)
        case = Case(named, layout, eager, self.reference.of(named.call, eager, layout=layout))
        # One run says little about how far rounding may go: inputs that are off by a roundoff are a second opinion, and
        # all seeds of a recipe are looked at together.
        opinions = [eager]
        if has_floats(named.call):
            opinions.append(observe(self.subject, shaken(named.call), self._state, layout=layout))
        for seen in opinions:
            truth = dict(case.truth.values())
            for name, value in seen.values():
                if not value.dtype.is_floating_point or name not in truth or truth[name].shape != value.shape:
                    continue
                if rounded(value, truth[name]):  # buffers mostly: there may be hundreds
                    continue
                room = self._room.get((_recipe(case), name), Error(0.0, 0.0))
                self._room[_recipe(case), name] = worst((room, error_of(value, truth[name])))
        return case

    def _recorded_room(self, name: str) -> Error:
        return self._room.get((_recipe(self._cases[0]), name), Error(0.0, 0.0))

    def _draws(self) -> bool:
        """Whether the program draws random numbers: another seed, another result."""
        if self.subject.kind == "step":
            return False
        first, again, second = (observe(self.subject, self.subject.calls[0], self._state, draw=n) for n in (0, 0, 1))
        if problem := why_not_comparable(first.outputs) or why_not_the_same(first, again):
            raise UsageError(f"optimize() compares results: {problem}")
        given = [values_of(tensor) for tensor in tensors_of(self.subject.calls[0])]
        if [tensor.shape for tensor in first.inputs] != [tensor.shape for tensor in given]:
            raise UsageError(
                "optimize() repeats a call: this one leaves other tensors in its arguments than it was given"
            )
        self.subject.mutates = not all(same_bits(a, b) for a, b in zip(first.inputs, given, strict=True))
        return not all(same_bits(a, b) for (_, a), (_, b) in zip(first.values(), second.values(), strict=True))


def patches_of(variant: Any) -> list[ForwardPatch]:
    """The patches that a variant consists of."""
    if isinstance(variant, ForwardPatch):
        return [variant]
    if isinstance(variant, Several):
        return [patch for part in variant.parts for patch in patches_of(part)]
    inner = getattr(variant, "variant", None)
    return patches_of(inner) if inner is not None else []


def _afterwards(check: Check) -> Check:
    return msgspec.structs.replace(check, rule=f"C6 afterwards, {check.rule}")


def _learn(patches: list[ForwardPatch], learning: bool) -> None:
    for patch in patches:
        patch.dispatch.learning = learning


def _class(checks: list[Check], exact: bool, candidate: Candidate) -> NumericClass:
    if not all(check.passed for check in checks) or candidate.refused_unless_allowed:
        return "changes semantics"
    return "exact" if exact else "same precision"


def _form_problem(candidate: Candidate, eager: Observation, found: Observation) -> str:
    problem = compare_form(eager, found)
    if "carry a graph" in problem and candidate.drops_graph:
        return ""
    if candidate.precision and " instead of " in problem:
        return ""
    return problem


def _recipe(case: Case) -> str:
    return case.named.name.split(",", 1)[0].rstrip(" 0123456789")
