"""C2: evidence that a candidate does the work, each time, with what it was given this time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lanewise.fix.gate.inputs import other_values
from lanewise.fix.gate.observe import Observation, observe
from lanewise.fix.gate.tolerances import Error, allowed, error_of
from lanewise.fix.model import Check
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call, same_bits, tensors_of, values_of
from lanewise.fix.typed_torch import torch

__all__ = ["check_evidence"]


Close = Callable[[Sequence[Any], Sequence[Any]], bool]
"""Of all outputs of two calls."""

_POISONS = (float("nan"), 1e30)
_ROUNDS = 12
_KEPT_BLOCKS = 4


def check_evidence(
    subject: Subject,
    state: State,
    eager: Observation,
    room: Callable[[str], Error],
    *,
    brief: bool = False,
    precision: float = 0.0,
) -> list[Check]:
    """The checks, on the first recorded call; with the candidate in place.

    Args:
        room: how far rounding takes the original in that call, by name of a value.
        brief: only those that timing could have broken.
        precision: roundoff of the arithmetic that the program asks for, if lower than that of its types.
    """

    def close(a: Sequence[Any], b: Sequence[Any]) -> bool:
        return all(_close(x, y, precision, room(f"output {at}")) for at, (x, y) in enumerate(zip(a, b, strict=True)))

    checks = [_twice(subject, state, close), _results_stay(subject, state), _changed_in_place(subject, state, close)]
    if not brief:
        checks += [_left_over(subject, state, eager, close), _many_calls(subject, state, close)]
        if subject.cuda:
            checks.append(_other_stream(subject, state, close))
    return checks


def _twice(subject: Subject, state: State, close: Close) -> Check:
    first, second = (observe(subject, subject.calls[0], state) for _ in range(2))
    same = _same(first.outputs, second.outputs) and _same_gradients(first, second)
    if same:
        return Check("C2 the same twice", True, "equal in every bit")
    alike = close(first.outputs, second.outputs)
    return Check(
        "C2 the same twice", alike, "alike but for rounding (not deterministic)" if alike else "another result"
    )


def _results_stay(subject: Subject, state: State) -> Check:
    """A result must not be changed by later calls: no buffer that is handed out twice."""
    other = _other_values(subject)
    with _without_marks(subject, state):
        seed(subject, 0)
        kept = tensors_of(subject.run(copy_call(subject.calls[0])))
        before = [tensor.detach().clone() for tensor in kept]
        subject.run(copy_call(other))
        subject.wait()
        same = all(same_bits(a.detach(), b) for a, b in zip(kept, before, strict=True))
    return Check("C2 results stay", same, "" if same else "a later call changes the result of an earlier one")


def _changed_in_place(subject: Subject, state: State, close: Close) -> Check:
    """The same tensors with other values in them are another call: nothing may be remembered by address or identity."""
    call = copy_call(subject.calls[0])
    other = _other_values(subject)
    rule = "C2 inputs are read each time"
    if not tensors_of(call):
        return Check(rule, True, "no tensors among the arguments")
    with _without_marks(subject, state):
        seed(subject, 0)
        subject.run(call)
        state.restore()
        with torch.no_grad():
            for mine, new in zip(tensors_of(call), tensors_of(other), strict=True):
                mine.data.copy_(new)
        seed(subject, 0)
        found = [values_of(tensor) for tensor in tensors_of(subject.run(call)[0])]
        state.restore()
        seed(subject, 0)
        fresh = [values_of(tensor) for tensor in tensors_of(subject.run(copy_call(other))[0])]
        same = close(found, fresh)
    return Check(rule, same, "" if same else "the result is that of the values that were there before")


def _left_over(subject: Subject, state: State, eager: Observation, close: Close) -> Check:
    """Memory that the call is likely to get is filled with values that would show if they were not overwritten."""
    rule = "C2 nothing left over from memory"
    seen: list[list[Any]] = []
    for poison in _POISONS:
        blocks = [
            torch.full_like(tensor, poison)
            for tensor in [*eager.outputs, *[g for g in eager.gradients if g is not None]]
            if tensor.dtype.is_floating_point
            for _ in range(_KEPT_BLOCKS)
        ]
        del blocks
        seen.append(observe(subject, subject.calls[0], state).outputs)
    same = close(seen[0], seen[1])
    return Check(rule, same, "" if same else "the result depends on what was in memory before")


def _many_calls(subject: Subject, state: State, close: Close) -> Check:
    """Results do not wear off: after a dozen calls with the same and with other values the work is still being done."""
    rule = "C2 the same after many calls"
    other = _other_values(subject)
    first = observe(subject, subject.calls[0], state).outputs
    for at in range(_ROUNDS):
        with _without_marks(subject, state):
            subject.run(copy_call(other if at % 2 else subject.calls[0]))
    last = observe(subject, subject.calls[0], state).outputs
    same = close(first, last)
    return Check(rule, same, "" if same else "later calls give another result")


def _other_stream(subject: Subject, state: State, close: Close) -> Check:
    """Read on the stream that the call was made on, at once: work that runs elsewhere without being waited for shows.

    Held against what the candidate itself gives when everything is waited for: that this is right has been checked.
    """
    rule = "C2 on the caller's stream"
    subject.wait()
    settled = observe(subject, subject.calls[0], state).outputs
    subject.wait()
    stream = torch.cuda.Stream(subject.device)
    with torch.cuda.stream(stream):
        busy = torch.empty(1 << 26, device=subject.device)
        for _ in range(20):  # the caller's stream is behind: work on another one would be ahead of its inputs
            busy.normal_()
        found = observe(subject, subject.calls[0], state).outputs
    subject.wait()
    same = close(found, settled)
    return Check(
        rule, same, "" if same else "another result on a stream of its own: work runs on a stream nobody waits for"
    )


def _other_values(subject: Subject) -> Call:
    """A call of the same kind whose values differ from the first recorded one."""
    if len(subject.calls) > 1 and _shapes(subject.calls[1]) == _shapes(subject.calls[0]):
        return subject.calls[1]
    return other_values(subject.calls[0])


def _shapes(call: Call) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors_of(call)]


class _without_marks:  # noqa: N801 - reads as a statement
    """Whatever is run inside leaves the subject as it was."""

    def __init__(self, subject: Subject, state: State) -> None:
        self._state = state

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._state.restore()


def _same(a: list[Any], b: list[Any]) -> bool:
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))


def _same_gradients(first: Observation, second: Observation) -> bool:
    pairs = zip(first.gradients, second.gradients, strict=True)
    return all(b is None if a is None else b is not None and same_bits(a, b) for a, b in pairs)


def _close(a: Any, b: Any, precision: float, room: Error) -> bool:
    """Equal but for the order of additions, or for what a lower precision that was asked for rounds: each of the two may be
    as far from the truth as the original."""
    if same_bits(a.detach(), b.detach()):
        return True
    if a.shape != b.shape or not a.dtype.is_floating_point:
        return False
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return False
    roundoff = max(precision, 1e-3 if a.dtype.itemsize <= 2 else 1e-5)
    return error_of(a, b).of_large().within(allowed(room, a.dtype, precision=roundoff))
