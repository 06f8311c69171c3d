"""C4: calls that a candidate was not made for reach the original program: other shapes, strides, modes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.inputs import other_shapes, shaken
from lanewise.fix.gate.numbers import Error, allowed, error_of, other_masks
from lanewise.fix.gate.observe import Observation, compare_form, observe
from lanewise.fix.model import Check
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, same_bits
from lanewise.record.torched import torch_part

__all__ = ["check_edges"]

torch: Any = torch_part()


def check_edges(
    subject: Subject, state: State, variant: Variant, room: Callable[[str], Error], precision: float = 0.0
) -> list[Check]:
    """The checks, with the candidate in place; for each the original is run as well, with the candidate taken off.

    Args:
        room: how far rounding takes the original, by name of a value: two ways that are both right may be that far apart.
        precision: roundoff of the arithmetic that the program asks for, if lower than that of its types.
    """
    situations: list[tuple[str, Call, Any, bool | None]] = [
        (one.name, one.call, nullcontext, None) for one in other_shapes(subject.calls[0])
    ]
    first = subject.calls[0]
    autocast = torch.autocast(subject.device.type, torch.bfloat16)
    situations.append(("under autocast", first, lambda: autocast, None))
    situations.append(("without gradients", first, torch.no_grad, None))
    if subject.kind == "inference":
        situations.append(("with gradients", first, torch.enable_grad, None))
    if subject.module is not None and not subject.random:
        situations.append(("in the other mode", first, nullcontext, not subject.module.training))
    checks: list[Check] = []
    if subject.kind == "inference" and torch.is_grad_enabled():
        # Results that carry a graph may be differentiated: then the gradients have to be right.
        subject.kind = "training"
        try:
            rounding = _rounding(subject, state, variant, first)
            problem = _one(subject, state, variant, first, nullcontext, None, rounding, precision)
        except Exception:  # the original cannot be differentiated
            problem = None
        finally:
            subject.kind = "inference"
            variant.enable()
        if problem is not None:
            checks.append(Check("C3 gradients", not problem, problem))
    for name, call, context, mode in situations:
        problem = _one(subject, state, variant, call, context, mode, room, precision)
        if problem is not None:
            checks.append(Check(f"C4 {name}", not problem, problem))
    return checks


def _one(
    subject: Subject,
    state: State,
    variant: Variant,
    call: Call,
    context: Any,
    mode: bool | None,
    room: Callable[[str], Error],
    precision: float,
) -> str | None:
    """The problem, "" if there is none; None where the original does not take such a call."""
    variant.disable()
    try:
        expected = _observed(subject, state, call, context, mode)
    except Exception:
        return None
    finally:
        state.restore()
        variant.enable()
    try:
        found = _observed(subject, state, call, context, mode)
    except Exception as error:
        state.restore()
        return f"raises {type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return compare_form(expected, found) or _values(expected, found, room, precision)


def _rounding(subject: Subject, state: State, variant: Variant, call: Call) -> Callable[[str], Error]:
    """How far inputs that are off by a roundoff take the original."""
    variant.disable()
    base, other = (observe(subject, one, state) for one in (call, shaken(call)))
    apart = {
        name: error_of(b, a)
        for (name, a), (_, b) in zip(base.values(), other.values(), strict=True)
        if a.dtype.is_floating_point
    }
    variant.enable()
    # Where inputs hardly matter (a bias), rounding is what it is elsewhere.
    most = Error(*(max((error[at] for error in apart.values()), default=0.0) for at in (0, 1)))
    return lambda name: most if name in apart else Error(0.0, 0.0)


def _observed(subject: Subject, state: State, call: Call, context: Any, mode: bool | None) -> Observation:
    if mode is not None:
        subject.module.train(mode)
    with context():
        return observe(subject, call, state)


def _values(expected: Observation, found: Observation, room: Callable[[str], Error], precision: float) -> str:
    for (name, a), (_, b) in zip(expected.values(), found.values(), strict=True):
        if same_bits(a, b):
            continue
        if not a.dtype.is_floating_point or other_masks(b, a, a):
            return f"{name} differs"
        error = error_of(b, a)
        # Each may be off by what passes, in opposite directions.
        limit = allowed(Error(*(2 * part for part in room(name))), a.dtype, precision=precision)
        if not error.within(limit):
            return f"{name} is off by {error.largest:.2g} of its largest value"
    return ""
