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
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from lanewise.errors import UsageError
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.gate.around import Around, leaves_nothing
from lanewise.fix.gate.backward_passes import Backward
from lanewise.fix.gate.cases import Case, Cases
from lanewise.fix.gate.declared_precision import declared_precision
from lanewise.fix.gate.edges import Edges
from lanewise.fix.gate.inputs import Named
from lanewise.fix.gate.kept import Kept, room_on
from lanewise.fix.gate.observe import Observation, compare_form, gradient_scale, observe, why_not_the_same
from lanewise.fix.gate.reference import Reference, make_reference
from lanewise.fix.gate.tolerances import NOISE, Error, allowed, allowed_noise, error_of, other_masks
from lanewise.fix.gate.training_steps import StepCheck
from lanewise.fix.gate.work_evidence import check_evidence
from lanewise.fix.model import Check, NumericClass
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.process_settings import changed_settings, put_back, settings
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import same_bits, tensors_of, values_of, why_not_comparable
from lanewise.fix.typed_torch import torch

__all__ = ["Correctness", "Result", "patches_of"]


_ROUNDING = 1e-2


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
    """The gate for one subject; the original's results are computed once, most of them when the first candidate is checked.

    Args:
        subject: unpatched.
        seconds: that preparing the cases may take: more time means more seeds, never fewer kinds of input.

    Attributes:
        settings: of the process, as the program runs with them.
    """

    def __init__(self, subject: Subject, state: State, *, seconds: float = 10.0) -> None:
        self.subject = subject
        self.settings = settings()
        self._state = state
        self._declared = declared_precision(subject)
        subject.random = self._draws()
        self._steps: StepCheck | None = None
        self.reference: Reference | None = None if subject.kind == "step" else make_reference(subject, state)
        self._kept = Kept(room_on(subject.device))
        self._cases = Cases(subject, state, self.reference, self._kept, seconds) if self.reference is not None else None
        self._precision = self._declared
        self._edges: Edges | None = None
        self._around: Around | None = None
        self._backward: Backward | None = None

    def get_ready(self) -> float:
        """Find out what is needed to judge any candidate, once one is worth it; goes on where it was interrupted.

        Returns:
            Seconds that it took.
        """
        started = time.monotonic()
        if self._cases is not None:
            self._cases.prepare()
        subject, state = self.subject, self._state
        if subject.kind == "step":
            self._steps = self._steps or StepCheck(subject, state)
        if self.reference is not None:
            room = self._known.recorded_room
            self._edges = self._edges or Edges(subject, state, self.reference, room, self._kept, self._declared)
            self._around = self._around or Around(subject, state, self._alike_outputs)
        if subject.kind == "training":
            self._backward = self._backward or Backward(subject, state, self._alike_gradients)
        return time.monotonic() - started

    @property
    def _known(self) -> Cases:
        """The cases; a step is judged without any."""
        assert self._cases is not None
        return self._cases

    @property
    def what(self) -> str:
        """How the truth is known, for the report."""
        return self.reference.what if self.reference is not None else StepCheck.what

    @property
    def cases(self) -> int:
        """Calls that every candidate is checked with."""
        return len(self._cases) if self._cases is not None else 0

    def apart(self, at: int, precision: float = 0.0) -> float:
        """How far an output may be from another right one, as share of its largest value: each may be off by what passes.

        Args:
            at: its number. precision: unit roundoff of arithmetic that was allowed on purpose.
        """
        if not self._cases:
            return 0.0
        name = f"output {at}"
        limit = allowed(
            self._cases.recorded_room(name),
            self._cases.recorded_type(name),
            precision=max(precision, self._declared),
        )
        return 2 * limit.largest

    def give_back(self) -> None:
        """Keep nothing from one candidate to the next any more: what is needed again is made again."""
        self._kept.give_back()

    def check(self, candidate: Candidate, variant: Variant, *, again: bool = False) -> Result:
        """Check a candidate; `again`: the shorter form after timing (C6)."""
        self.get_ready()
        if left := leaves_nothing(variant, self._state):
            check = Check("C2 taken off", False, f"it leaves {', '.join(left)} changed")
            return Result(False, "changes semantics", [check])
        if changed := changed_settings(self.settings):
            put_back(self.settings)
            check = Check("C2 settings", False, f"its first calls change settings of the process: {', '.join(changed)}")
            return Result(False, "changes semantics", [check])
        variant.enable()
        before = settings()
        try:
            found = self._check(candidate, variant, again)
            if found.passed and (changed := [*changed_settings(before), *_clocks_changed(self.settings)]):
                check = Check("C2 settings", False, f"it changes settings of the process: {', '.join(changed)}")
                found = Result(False, "changes semantics", [*found.checks, check])
            return found._replace(checks=[_afterwards(check) for check in found.checks]) if again else found
        finally:
            put_back(before)
            variant.disable()
            put_back(self.settings)
            self._state.restore()

    def _check(self, candidate: Candidate, variant: Variant, again: bool) -> Result:
        patches = patches_of(variant)
        if self._steps is not None:
            _learn(patches, True)
            check, exact = self._steps.check()
            _learn(patches, False)
            return Result(check.passed, _class([check], exact, candidate), [check])
        recorded = len(self.subject.calls)
        known = self._known
        count = min(recorded + 2, len(known)) if again else len(known)
        checks: list[Check] = []
        exact = True
        worst = 0.0
        for at in range(count):
            case = known.case(at, variant)
            _learn(patches, at < recorded)
            problem, same, share = self._one(candidate, case)
            exact, worst = exact and same, max(worst, share)
            if problem:
                rule = "C3 gradients" if "gradient" in problem else "C1 values"
                checks.append(Check(rule, False, f"{case.name}: {problem}"))
                return Result(False, _failing_class(problem, share), checks)
        _learn(patches, False)
        for named, error in () if again else known.refused:
            if not self._raises(named):
                checks.append(
                    Check("C1 values", False, f"{named.name}: gives a result where the original raises {error}")
                )
                return Result(False, "changes semantics", checks)
        what = "equal in every bit" if exact else f"error at most {100 * worst:.0f} % of what passes"
        checks.append(Check("C1 values", True, f"{count} calls, {what}"))
        first = known.case(0, variant)
        if self.subject.kind == "training":
            checks.append(Check("C3 gradients", True, f"of {len(first.eager.gradients)} tensors, in every call"))
        precision = max(candidate.precision, self._declared)
        for at in known.kinds() if not again else [0]:
            eager = known.case(at, variant).eager
            with _first(self.subject, at):
                checks += check_evidence(
                    self.subject,
                    self._state,
                    eager,
                    known.recorded_room,
                    brief=again or at > 0,
                    precision=precision,
                )
        assert self._edges is not None
        assert self._around is not None
        self._precision = precision
        if again:
            checks.append(self._around.check_memory())
        else:
            checks += self._edges.check(variant, precision=candidate.precision, drops_graph=candidate.drops_graph)
            checks += self._around.check(variant)
            checks += self._backward.check(candidate.refuses) if self._backward is not None else []
        return Result(all(check.passed for check in checks), _class(checks, exact, candidate), checks)

    def _one(self, candidate: Candidate, case: Case) -> tuple[str, bool, float]:
        """The first problem of one case ("" if none), whether all bits agree, and the worst error as share of its limit."""
        found = observe(self.subject, case.call, self._state, layout=case.layout)
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
            if not name.startswith("output"):
                error = error.of_large()
            limit = allowed(
                self._known.room(case, name),
                eager.dtype,
                precision=max(candidate.precision, self._declared),
                summed=name.startswith("gradient"),
            )
            if not error.within(limit):
                if name.startswith("gradient") and self._is_noise(case, name, value, reference):
                    continue
                return _described(name, error, limit), False, error.norm
            shares = (e / bound for e, bound in zip(error[:2], limit[:2], strict=True) if bound)
            worst = max([worst, *shares])
        return "", exact, worst

    def _is_noise(self, case: Case, name: str, value: Any, truth: Any) -> bool:
        """Whether what a gradient is off by is no more than its noise in the original, or than rounding makes of the step
        that all gradients together would make."""
        room, scale = self._known.room(case, name), gradient_scale(case.eager)
        limit = allowed_noise(room if room.norm > NOISE else Error(0.0, 0.0), truth, scale, value.dtype)
        return error_of(value, truth).within(limit)

    def _alike_outputs(self, expected: list[Any], found: list[Any]) -> bool:
        """Whether two calls with the same arguments give the same, but for rounding."""
        if [one.shape for one in expected] != [one.shape for one in found]:
            return False
        return all(self._apart(f"output {at}", a, b) for at, (a, b) in enumerate(zip(expected, found, strict=True)))

    def _alike_gradients(self, expected: list[Any], found: list[Any]) -> bool:
        """The same for gradients, on the scale of the largest of them."""
        scale = max((float(one.abs().max()) for one in expected if one.numel()), default=0.0)
        most = self._known.gradient_room()
        for a, b in zip(expected, found, strict=True):
            if a.shape != b.shape or not torch.equal(torch.isfinite(a), torch.isfinite(b)):
                return False
            limit = max(4 * allowed(most, a.dtype, precision=self._declared).largest, 1e-3)
            own = max(float(a.double().abs().nan_to_num(posinf=0).max()), 1e-2 * scale) if a.numel() else 0.0
            if a.numel() and float((a.double() - b.double()).nan_to_num().abs().max()) > limit * own:
                return False
        return True

    def _apart(self, name: str, a: Any, b: Any) -> bool:
        if same_bits(a, b):
            return True
        if not a.dtype.is_floating_point or (a.dtype != b.dtype and not self._precision):
            return False
        roundoff = max(self._precision, 1e-3 if a.dtype.itemsize <= 2 else 1e-5)
        limit = allowed(self._known.recorded_room(name), a.dtype, precision=2 * roundoff)
        return other_masks(b, a, a) == 0 and error_of(b, a).of_large().within(limit)

    def _raises(self, named: Named) -> bool:
        try:
            observe(self.subject, named.make(), self._state)
        except Exception:
            self._state.restore()
            return True
        return False

    def _draws(self) -> bool:
        """Whether the program draws random numbers: another seed, another result."""
        if self.subject.kind == "step":
            return False
        subject, state = self.subject, self._state
        call = subject.calls[0]
        first = observe(subject, call, state)
        if problem := why_not_comparable(first.outputs) or why_not_the_same(first, observe(subject, call, state)):
            raise UsageError(f"optimize() compares results: {problem}")
        given = tensors_of(call)
        if [tensor.shape for tensor in first.inputs] != [values_of(tensor).shape for tensor in given]:
            raise UsageError(
                "optimize() repeats a call: this one leaves other tensors in its arguments than it was given"
            )
        subject.mutates = not all(same_bits(a, values_of(b)) for a, b in zip(first.inputs, given, strict=True))
        second = observe(subject, call, state, draw=1)
        # A generator of its own is not seeded by us: it is another one than before.
        draws = first.drawn != _undrawn(subject, state)
        same = all(same_bits(a, b) for (_, a), (_, b) in zip(first.values(), second.values(), strict=True))
        return draws or not same


@contextmanager
def _first(subject: Subject, at: int) -> Generator[None]:
    """Another of the recorded calls is the one that checks are made with."""
    calls = subject.calls
    subject.calls = [calls[at], *calls[:at], *calls[at + 1 :]]
    try:
        yield
    finally:
        subject.calls = calls


def _described(name: str, error: Error, limit: Error) -> str:
    if error.largest > limit.largest or error.norm > limit.norm:
        return (
            f"{name} is off by {error.largest:.2g} of its largest value and {error.norm:.2g} in norm, "
            f"where {limit.largest:.2g} and {limit.norm:.2g} pass"
        )
    off, most = (error.small, limit.small) if error.small > limit.small else (error.few, limit.few)
    return f"small values of {name} are off by {off:.2g} of themselves, where {most:.2g} passes"


def _failing_class(problem: str, error: float) -> NumericClass:
    """A difference of this size, if it is one of values, is less precise, and not another program."""
    return "less precise" if "off by" in problem and 0 < error < _ROUNDING else "changes semantics"


def _clocks_changed(before: dict[str, Any]) -> list[str]:
    return [name for name in changed_settings(before) if name.startswith("time.")]


def patches_of(variant: Any) -> list[ForwardPatch]:
    """The patches that a variant consists of."""
    if isinstance(variant, ForwardPatch):
        return [variant]
    if isinstance(variant, Several):
        return [patch for part in variant.parts for patch in patches_of(part)]
    inner = getattr(variant, "variant", None)
    return patches_of(inner) if inner is not None else []


def _undrawn(subject: Subject, state: State) -> int:
    """What tells the state of the generators if nothing is drawn."""
    seed(subject, 0)
    try:
        return state.generators.mark()
    finally:
        state.restore()


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
