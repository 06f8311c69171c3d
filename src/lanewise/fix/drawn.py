"""Generators of random numbers: those that programs share, and a program's own."""

from __future__ import annotations

import random
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from lanewise.fix.subject import Subject
from lanewise.fix.torch_types import Generator
from lanewise.fix.typed_torch import torch

__all__ = ["Generators"]

_numpy: Any = np.random
"""The generator that programs share; they may draw from it, we do not."""


class Generators:
    """Of one program: the shared ones of Python, NumPy and torch, and those that it holds itself.

    Args:
        subject: whose modules' attributes, closures and globals are looked through.
    """

    def __init__(self, subject: Subject) -> None:
        self._device = subject.device if subject.cuda else None
        self._own = list({id(one): one for one in _held(subject) if _is_generator(one)}.values())

    def state(self) -> list[Any]:
        """Of all of them."""
        device = [torch.cuda.get_rng_state(self._device)] if self._device is not None else []
        return [
            random.getstate(),
            _numpy.get_state(),
            torch.get_rng_state(),
            *device,
            *(_state_of(one) for one in self._own),
        ]

    def put_back(self, state: list[Any]) -> None:
        """Set all to a state."""
        python, numbers, host, *others = state
        random.setstate(python)
        _numpy.set_state(numbers)
        torch.set_rng_state(host)
        if self._device is not None:
            torch.cuda.set_rng_state(others.pop(0), self._device)
        for one, value in zip(self._own, others, strict=True):
            _set_state(one, value)

    def mark(self) -> int:
        """What tells the state apart from others."""
        return hash(tuple(_mark(one) for one in self.state()))


_DEPTH = 4


def _held(subject: Subject) -> Iterable[Any]:
    found: list[Any] = []
    seen: set[int] = set()
    kinds: dict[type, Any] = {}
    for module in subject.every_module():
        for value in vars(module).values():
            found += value if isinstance(value, list | tuple) else (value,)
        kinds[type(module)] = module
    functions = [getattr(subject.entry, "original", None)]
    # What is written for this program may draw from anything that it reaches by name; torch's own layers do not.
    functions += [getattr(kind, "forward", None) for kind in kinds if not kind.__module__.startswith("torch.")]
    for function in functions:
        _reached(function, found, seen, 0)
    return found


def _reached(function: Any, found: list[Any], seen: set[int], depth: int) -> None:
    """What a function reaches by name: closure, globals, the object that it is bound to, and what functions there reach."""
    found += getattr(getattr(function, "__self__", None), "__dict__", {}).values()
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or id(function) in seen or depth > _DEPTH:
        return
    seen.add(id(function))
    values: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    known = function.__globals__
    values += [known[name] for name in function.__code__.co_names if name in known]
    found += values
    for value in values:
        if not str(getattr(value, "__module__", "") or "").startswith(("torch.", "numpy.")):
            _reached(value, found, seen, depth + 1)


def _is_generator(value: Any) -> bool:
    return isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random)


def _state_of(generator: Generator) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_state(generator: Generator, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _mark(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return bytes(state.numpy())
    if isinstance(state, dict):
        return repr(state)
    if any(isinstance(one, np.ndarray) for one in state):
        return tuple(one.tobytes() if isinstance(one, np.ndarray) else one for one in state)
    return state
