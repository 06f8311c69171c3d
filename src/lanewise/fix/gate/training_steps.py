"""C5: a training step is run several times with and without a candidate. Rounding grows from step to step, so what is
allowed is what rounding alone does: the same steps from parameters that were changed by one unit of roundoff."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lanewise.fix.gate.inputs import has_floats, large_values, not_finite, other_values
from lanewise.fix.model import Check
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call, drawing, same_bits, tensors_of, values_of
from lanewise.fix.torch_types import Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["StepCheck"]


_STEPS = 8
_COARSE = 1e-2
_SEEDS = 3
_GROWN = 8.0
_FACTOR = 4.0
_MOVED = 0.5
_FLOOR_ROUNDOFFS = 64.0


class _Series(NamedTuple):
    """Calls whose steps follow each other.

    Attributes:
        least: difference that counts, as share of the size. grown: what all parameters are multiplied with before, 1 for
            nothing. broken: whether one parameter gets an infinite value before.
    """

    name: str
    calls: list[Call]
    steps: int = _STEPS
    least: float = 0.0
    grown: float = 1.0
    broken: bool = False


class Course(NamedTuple):
    """Several steps: every output of each, how far parameters and buffers moved, and how large they are.

    Attributes:
        left: what optimizers keep, by name, and the gradients that are there in the end.
        plain: states of schedules and scalers, learning rates, which gradients there are. batches: arguments afterwards.
        spoiled: whether more values of parameters or buffers are NaN or infinite in the end.
    """

    outputs: list[Tensor]
    moves: list[Any]
    size: float
    left: dict[str, list[Any]]
    plain: list[Any]
    batches: list[Any]
    spoiled: bool


class StepCheck:
    """Knows what the original does in a few steps, and how far rounding alone takes it.

    Attributes:
        what: how the truth is known, for the report.
    """

    what = f"the program itself over {_STEPS} steps, and what rounding alone changes in them"

    def __init__(self, subject: Subject, state: State) -> None:
        self._subject = subject
        self._state = state
        found = [(one, self._course(one)) for one in _series(subject)]
        found += [(one, course) for one in _hard(subject) if (course := self._survived(one)) is not None]
        self._expected = [(one, course, self._rounding(one, course)) for one, course in found]

    def check(self) -> tuple[Check, bool]:
        """Run the steps as the program is now; whether they agree, and whether in every bit."""
        exact = True
        told: list[str] = []
        for series, expected, spread in self._expected:
            name, found = series.name, self._course(series)
            if len(found.outputs) != len(expected.outputs):
                return Check("C5 many steps", False, f"{name}: the step returns other things"), False
            if problem := _otherwise(expected, found):
                return Check("C5 many steps", False, f"{name}: {problem}"), False
            pairs = list(zip([*expected.outputs, *expected.moves], [*found.outputs, *found.moves], strict=True))
            exact = exact and all(same_bits(a, b) for a, b in pairs)
            parts = [
                ("outputs", expected.outputs, found.outputs, max(_FACTOR * spread[0], _floor(expected.outputs))),
                ("updates", expected.moves, found.moves, max(_FACTOR * spread[1], _move_floor(expected))),
            ]
            for key, want in expected.left.items():
                most = max(_FACTOR * spread[2].get(key, 0.0), _floor(want))
                parts.append((f"{key} after", want, found.left[key], most))
            for what, want, have, explained in parts:
                distance, limit = _distance(want, have), max(explained, series.least)
                if not distance <= limit:
                    off = f"off by {distance:.2g}, rounding explains {limit:.2g}"
                    return Check("C5 many steps", False, f"{name}: the {what} of {series.steps} steps are {off}"), False
                told.append(f"{what} off by {distance:.1g} of {limit:.1g}")
        return Check("C5 many steps", True, "equal in every bit" if exact else "; ".join(told)), exact

    def _survived(self, series: _Series) -> Course | None:
        """Its course; None where the original raises, or is left with more values that are not finite."""
        try:
            course = self._course(series)
        except Exception:
            return None
        return None if course.spoiled else course

    def _course(self, series: _Series, *, shaken: int | None = None) -> Course:
        subject = self._subject
        try:
            seed(subject, 0)
            if shaken is not None:
                _shake(subject, shaken)
            _prepare(subject, series)
            kept = [*subject.parameters(), *subject.buffers()]
            starts = [values_of(tensor) for tensor in kept]
            outputs: list[Tensor] = []
            batches: list[Any] = []
            for at in range(series.steps):
                call = copy_call(series.calls[at % len(series.calls)])
                result, _ = subject.run(call)
                outputs += [values_of(tensor) for tensor in tensors_of(result)]
                batches = [values_of(tensor) for tensor in tensors_of(call)]
            moves = [values_of(end).double() - start.double() for end, start in zip(kept, starts, strict=True)]
            size = math.sqrt(sum(float(start.double().square().sum()) for start in starts))
            gradients = [parameter.grad for parameter in subject.parameters()]
            left = _states(subject) | {"gradients": [values_of(one) for one in gradients if one is not None]}
            plain: list[Any] = [[one is None for one in gradients]]
            plain += [_numbers(stepper.state_dict()) for stepper in subject.found.steppers]
            plain += [_numbers(group.get("lr")) for one in subject.found.optimizers for group in one.param_groups]
            spoiled = _not_finite(kept) > _not_finite(starts)
            return Course(outputs, moves, size, left, plain, batches, spoiled)
        finally:
            self._state.restore()

    def _rounding(self, series: _Series, course: Course) -> tuple[float, float, dict[str, float]]:
        """How far outputs and parameters get from changes by one roundoff, over a few draws."""
        courses = [self._course(series, shaken=number) for number in range(_SEEDS)]
        outputs = max(_distance(course.outputs, other.outputs) for other in courses)
        alike = [other for other in courses if _shapes(other) == _shapes(course)]
        left = {
            key: max((_distance(kept, other.left[key]) for other in alike), default=0.0)
            for key, kept in course.left.items()
        }
        return outputs, max(_distance(course.moves, other.moves) for other in courses), left


def _series(subject: Subject) -> list[_Series]:
    """The steps that are made in any case."""
    first = subject.calls[0]
    more = [_Series("normal values", [other_values(first)])] if tensors_of(first) else []
    return [_Series("recorded calls", list(subject.calls)), *more]


def _hard(subject: Subject) -> list[_Series]:
    """Steps in which gradients are clipped, and steps that a scaler skips. Without floating inputs the parameters have to
    make gradients large, or not finite. Such steps are far from those of a training, and rounding grows fast in them: there
    are few, and only what is far off counts."""
    first = subject.calls[0]
    if has_floats(first):
        calls = [other_values(first), not_finite(first), other_values(first)]
        return [
            _Series("large values", [large_values(first)], 1, _COARSE),
            _Series("values that are not finite", calls, len(calls), _COARSE),
        ]
    calls = list(subject.calls)
    return [
        _Series("large parameters", calls, 1, _COARSE, grown=_GROWN),
        _Series("a parameter that is not finite", calls, 2, _COARSE, broken=True),
    ]


def _prepare(subject: Subject, series: _Series) -> None:
    """Make the parameters what they are at the beginning of these steps."""
    floating = [one for one in subject.parameters() if one.dtype.is_floating_point and one.numel()]
    with torch.no_grad():
        for parameter in floating if series.grown != 1 else ():
            parameter.mul_(series.grown)
        if series.broken and floating:
            floating[-1].view(-1)[0] = math.inf


def _not_finite(tensors: list[Tensor]) -> int:
    return sum(int((~torch.isfinite(tensor)).sum()) for tensor in tensors)


def _states(subject: Subject) -> dict[str, list[Any]]:
    """What optimizers keep of each parameter (moments, counters), by name."""
    found: dict[str, list[Any]] = {}
    for optimizer in subject.found.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                kept = optimizer.state.get(parameter, {})
                tensors = {name: one for name, one in kept.items() if isinstance(one, torch.Tensor)}
                # After a step that was skipped some have made them and others have not.
                if any(bool(one.any()) for one in tensors.values()):
                    for name, value in tensors.items():
                        found.setdefault(name, []).append(values_of(value).cpu())
    return found


def _shapes(course: Course) -> dict[str, list[Any]]:
    return {name: [one.shape for one in kept] for name, kept in course.left.items()}


def _numbers(value: Any) -> Any:
    """A state as something that can be compared: numbers to seven digits."""
    if isinstance(value, torch.Tensor):
        return _numbers(value.tolist())
    if isinstance(value, dict):
        return {key: _numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value if isinstance(value, int | str) else None


def _otherwise(expected: Course, found: Course) -> str:
    """What a step has done besides its values that the original does not do; "" if nothing."""
    if expected.plain[0] != found.plain[0]:
        return "other gradients are there after a step"
    if expected.plain != found.plain:
        return "learning rates, or the states of schedules or gradient scalers, are others"
    if _shapes(expected) != _shapes(found):
        return "the optimizer keeps other states"
    if not all(map(same_bits, expected.batches, found.batches)):
        return "what the step is given is written to"
    moved, now = (sum(int(move.count_nonzero()) for move in course.moves) for course in (expected, found))
    # Where a learning rate is too small for the size of updates to say anything, whether there are any does.
    return "parameters do not move as they do" if now < _MOVED * moved or moved < _MOVED * now else ""


def _shake(subject: Subject, number: int) -> None:
    generators: dict[Any, Any] = {}
    with torch.no_grad():
        for parameter in subject.parameters():
            if parameter.dtype.is_floating_point:
                device = parameter.device
                generator = generators.setdefault(device, drawing(device, number))
                noise = torch.randn(tuple(parameter.shape), generator=generator, device=generator.device)
                noise = noise.to(device, parameter.dtype)
                parameter.mul_(1 + noise * torch.finfo(parameter.dtype).eps)


def _distance(a: list[Any], b: list[Any]) -> float:
    """Norm of the difference over the norm; infinite where one is finite and the other is not."""
    difference = size = 0.0
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            return math.inf
        x, y = x.double(), y.double()
        if not torch.equal(torch.isfinite(x), torch.isfinite(y)):
            return math.inf
        finite = torch.isfinite(x)
        difference += float(torch.where(finite, x - y, 0.0).square().sum())
        size += float(torch.where(finite, x, 0.0).square().sum())
    return math.sqrt(difference / size) if size else math.sqrt(difference)


def _floor(tensors: list[Tensor]) -> float:
    floating = [tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point]
    return _FLOOR_ROUNDOFFS * max((float(torch.finfo(dtype).eps) for dtype in floating), default=0.0)


def _move_floor(course: Course) -> float:
    """What storing parameters that are much larger than their change costs."""
    moved = math.sqrt(sum(float(move.square().sum()) for move in course.moves))
    return _FLOOR_ROUNDOFFS * 1.2e-7 * max(1.0, course.size / moved if moved else math.inf)
