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

from lanewise.capture.lazy_torch import torch_part
from lanewise.errors import UsageError
from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.gate.around import Around, leaves_nothing
from lanewise.fix.gate.backward_passes import Backward
from lanewise.fix.gate.declared_precision import declared_precision
from lanewise.fix.gate.edges import Edges
from lanewise.fix.gate.exchanged import shaken_parameters
from lanewise.fix.gate.inputs import Named, adversarial, near, shaken
from lanewise.fix.gate.observe import Observation, compare_form, gradient_scale, observe, why_not_the_same
from lanewise.fix.gate.reference import Reference, Truth, make_reference
from lanewise.fix.gate.tolerances import NOISE, Error, allowed, allowed_noise, error_of, other_masks, rounded, worst
from lanewise.fix.gate.training_steps import StepCheck
from lanewise.fix.gate.work_evidence import check_evidence
from lanewise.fix.model import Check, NumericClass
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.process_settings import changed_settings, put_back, settings
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, same_bits, tensors_of, values_of, why_not_comparable

__all__ = ["Correctness", "Result", "patches_of"]

torch: Any = torch_part()

_LAYOUTS = ("contiguous", "expanded", "transposed")
_MOST_SEEDS = 5
_MOST_KINDS = 3
"""Recorded calls of different shapes that get all checks."""
_ROUNDING = 1e-2


class Case(NamedTuple):
    """A call with what the original program makes of it, and the truth."""

    named: Named
    layout: str
    eager: Observation
    truth: Truth


class _Planned(NamedTuple):
    """A case to be; `may_refuse`: the original need not take such values."""

    named: Named
    layout: str = "contiguous"
    may_refuse: bool = False


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
        self._room: dict[tuple[str, str], Error] = {}
        self._refused: list[tuple[Named, str]] = []
        self._precision = self._declared
        self._cases: list[Case] = []
        self._edges: Edges | None = None
        self._around: Around | None = None
        self._backward: Backward | None = None
        self._more_s = seconds
        self._needed, self._more = self._plan() if self.reference is not None else ([], [])
        if self._needed:
            self._prepare_next(self._needed)

    def get_ready(self) -> float:
        """Find out what is needed to judge any candidate, once one is worth it; goes on where it was interrupted.

        Returns:
            Seconds that it took.
        """
        started = time.monotonic()
        while self._needed:
            self._prepare_next(self._needed)
        while self._more and self._more_s > 0:
            began = time.monotonic()
            self._prepare_next(self._more)
            self._more_s -= time.monotonic() - began
        self._more_s = 0.0
        subject, state = self.subject, self._state
        if subject.kind == "step":
            self._steps = self._steps or StepCheck(subject, state)
        if self.reference is not None:
            self._edges = self._edges or Edges(subject, state, self.reference, self._recorded_room, self._declared)
            self._around = self._around or Around(subject, state, self._alike_outputs)
        if subject.kind == "training":
            self._backward = self._backward or Backward(subject, state, self._alike_gradients)
        return time.monotonic() - started

    @property
    def what(self) -> str:
        """How the truth is known, for the report."""
        return self.reference.what if self.reference is not None else StepCheck.what

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
                return Result(False, _failing_class(problem, share), checks)
        _learn(patches, False)
        for named, error in () if again else self._refused:
            if not self._raises(named):
                checks.append(
                    Check("C1 values", False, f"{named.name}: gives a result where the original raises {error}")
                )
                return Result(False, "changes semantics", checks)
        what = "equal in every bit" if exact else f"error at most {100 * worst:.0f} % of what passes"
        checks.append(Check("C1 values", True, f"{len(cases)} calls, {what}"))
        if self.subject.kind == "training":
            checks.append(Check("C3 gradients", True, f"of {len(cases[0].eager.gradients)} tensors, in every call"))
        precision = max(candidate.precision, self._declared)
        for at in self._kinds() if not again else [0]:
            with _first(self.subject, at):
                checks += check_evidence(
                    self.subject,
                    self._state,
                    self._cases[at].eager,
                    self._recorded_room,
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
            if not name.startswith("output"):
                error = error._replace(small=0.0)
            limit = allowed(
                self._room.get((_recipe(case), name), Error(0.0, 0.0)),
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
        room, scale = self._room.get((_recipe(case), name), Error(0.0, 0.0)), gradient_scale(case.eager)
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
        most = worst(
            room for (_, name), room in self._room.items() if name.startswith("gradient") and room.norm <= NOISE
        )
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
        limit = allowed(self._recorded_room(name), a.dtype, precision=2 * roundoff)
        return other_masks(b, a, a) == 0 and error_of(b, a)._replace(small=0.0).within(limit)

    def _raises(self, named: Named) -> bool:
        try:
            observe(self.subject, named.call, self._state)
        except Exception:
            self._state.restore()
            return True
        return False

    def _kinds(self) -> list[int]:
        """Numbers of recorded calls of different kinds, the first ones of each."""
        seen: dict[Any, int] = {}
        for at, call in enumerate(self.subject.calls):
            seen.setdefault(tuple((t.shape, t.dtype) for t in tensors_of(call)), at)
        return list(seen.values())[:_MOST_KINDS]

    def _plan(self) -> tuple[list[_Planned], list[_Planned]]:
        """The cases to come: those that every candidate gets, the first recorded call first, and more seeds of them."""
        calls = self.subject.calls
        named = [_Planned(Named(f"recorded call {at}", call)) for at, call in enumerate(calls)]
        alike = near(calls[-1]) if not self.subject.random else []
        named += [_Planned(Named(f"the last call with {one.name}", one.call), may_refuse=True) for one in alike]
        for layout in _LAYOUTS[1:] if self.subject.kind == "training" else ():
            named.append(_Planned(Named(f"recorded call 0, {layout} gradient", calls[0]), layout))
        for number in self._kinds()[1:]:
            named += [_Planned(one, may_refuse=True) for one in adversarial(calls[number], seeds=1)]
        others = [_Planned(one, may_refuse=True) for one in adversarial(calls[0], seeds=_MOST_SEEDS)]
        a_seed = len(others) // _MOST_SEEDS
        return named + others[:a_seed], others[a_seed:]

    def _prepare_next(self, planned: list[_Planned]) -> None:
        """The next case; what the original refuses must be refused by everybody."""
        one = planned[0]
        try:
            self._cases.append(self._case(one.named, one.layout))
        except Exception as error:
            if not one.may_refuse:
                raise
            self._refused.append((one.named, type(error).__name__))
            self._state.restore()
        planned.pop(0)

    def _case(self, named: Named, layout: str) -> Case:
        assert self.reference is not None
        eager = observe(self.subject, named.call, self._state, layout=layout)
        case = Case(named, layout, eager, self.reference.of(named.call, eager, layout=layout))
        # One run says little about how far rounding may go: inputs and parameters that are off by a roundoff are a second
        # opinion, and all seeds of a recipe are looked at together.
        for seen in (eager, self._shaken(named.call, layout)):
            truth = dict(case.truth.values())
            for name, value in seen.values():
                if not value.dtype.is_floating_point or name not in truth or truth[name].shape != value.shape:
                    continue
                if rounded(value, truth[name]):  # buffers mostly: there may be hundreds
                    continue
                room = self._room.get((_recipe(case), name), Error(0.0, 0.0))
                self._room[_recipe(case), name] = worst((room, error_of(value, truth[name])))
        return case

    def _shaken(self, call: Call, layout: str) -> Observation:
        with shaken_parameters(self.subject):
            return observe(self.subject, shaken(call), self._state, layout=layout)

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
        # A generator of its own is not seeded by us: it is another one than before.
        draws = first.drawn != _undrawn(self.subject, self._state)
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
    return f"small values of {name} are off by {error.small:.2g} of themselves, where {limit.small:.2g} passes"


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


def _recipe(case: Case) -> str:
    return case.named.name.split(",", 1)[0].rstrip(" 0123456789")
