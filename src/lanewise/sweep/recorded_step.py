"""What the first recording tells of a step's operators: which there are, and which of their tensors are parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.signatures import Signature, Tensor
from lanewise.sweep.operator_arguments import Given
from lanewise.sweep.operator_timing import Call
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import ENGINE_PREFIX, Kind

__all__ = ["FirstStep", "first_step", "same_shapes", "threads_of"]

_OF_PARAMETERS = ("Optimizer.", "AccumulateGrad")
"""Rows in which nothing depends on the batch."""


@dataclass(frozen=True, eq=False)
class FirstStep:
    """The operators of a typical steady step, outer ones first.

    Attributes:
        events: of the trace, shape (calls,). calls: the same with arguments.
        skip: calls that need not be timed: views, and what is done once for each parameter.
        parameters: shapes of parameters that get a gradient.
    """

    events: np.ndarray
    calls: list[Call]
    skip: list[int]
    parameters: list[tuple[int, ...]]


def first_step(facts: Facts) -> FirstStep:
    """The operators of the steady step of median length."""
    trace, parent = facts.trace, facts.host.parent
    events = _operators_of(facts, _typical(facts))
    place = {int(event): at for at, event in enumerate(events)}
    calls: list[Call] = []
    skip: list[int] = []
    parameters: set[tuple[int, ...]] = set()
    trains = any(trace.name_of(event).startswith(ENGINE_PREFIX) for event in events.tolist())
    for at, event in enumerate(events.tolist()):
        name, arguments = trace.name_of(event), facts.signatures.of(event)
        chain = [event]
        while (above := int(parent[chain[-1]])) >= 0:
            chain.append(above)
        around = next((place[one] for one in chain[1:] if one in place), -1)
        backward = any(trace.name_of(one).startswith(ENGINE_PREFIX) for one in chain)
        calls.append(
            Call(
                name,
                None if arguments is None else _given(arguments),
                around,
                turn=int(trace.start[event]),
                kept=trains and not backward,
            )
        )
        if facts.view_names[trace.name[event]] or any(
            mark in trace.name_of(one) for one in chain for mark in _OF_PARAMETERS
        ):
            skip.append(at)
        if "AccumulateGrad" in name and arguments is not None:
            parameters |= {tensor.shape for tensor in arguments.tensors}
    return FirstStep(events, calls, skip, sorted(parameters))


def same_shapes(one: Facts, other: Facts) -> bool:
    """Whether the typical steps of two recordings call the same operators with the same shapes."""
    return _shapes(one) == _shapes(other)


def threads_of(facts: Facts) -> int:
    """The threads that operators on the CPU used; 0 if the recording does not say."""
    recorded = from_metadata(facts.trace.metadata)
    torch = recorded.environment.get("torch", {}) if recorded is not None else {}
    threads = torch.get("threads", 0) if isinstance(torch, dict) else 0
    return threads if isinstance(threads, int) else 0


def _typical(facts: Facts) -> int:
    steps = facts.trace.steps
    steady = np.flatnonzero(facts.steady)
    rows = steady if len(steady) else np.arange(len(steps))
    length = (steps.end - steps.start)[rows]
    return int(rows[np.argsort(length, kind="stable")[len(rows) // 2]])


def _operators_of(facts: Facts, step: int) -> np.ndarray:
    trace = facts.trace
    events = trace.of(Kind.OPERATOR)
    if trace.steps.recorded:
        events = events[trace.steps.of_event[events] == step]
    return events[np.argsort(facts.host.depth[events], kind="stable")]


def _shapes(facts: Facts) -> set[tuple[str, tuple[tuple[int, ...], ...]]]:
    found: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()
    for event in _operators_of(facts, _typical(facts)).tolist():
        arguments = facts.signatures.of(event)
        shapes = tuple(tensor.shape for tensor in arguments.tensors) if arguments else ()
        found.add((facts.trace.name_of(event), shapes))
    return found


def _given(arguments: Signature) -> list[Given]:
    found: list[Given] = []
    for place, value in enumerate(arguments.inputs):
        single = isinstance(value, Tensor)
        tensors = [value] if isinstance(value, Tensor) else list(value or ())
        found.append(Given(tensors, value is not None and not single, arguments.value(place)))
    return found
