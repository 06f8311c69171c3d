"""`State`: what running a program changes, kept so that it can be put back: parameters, buffers, gradients, attributes and
hooks of modules, states of optimizers, schedules and gradient scalers, modes and random numbers. Everything is put back in
place: references that the program holds stay valid."""

from __future__ import annotations

import copy
import random
from collections import deque
from typing import Any

import numpy as np

from lanewise.fix.drawn import Generators
from lanewise.fix.guard.changed import changed_among
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors
from lanewise.fix.torch_types import Optimizer, Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["State", "seed"]


_numpy: Any = np.random
"""The generator that programs share; they may draw from it, we do not."""

# How an optimizer works is what candidates change and undo themselves.
_NOT_STATE = frozenset({"params", "foreach", "fused", "capturable"})


class State:
    """A snapshot of a subject.

    Args:
        subject: the program.
        parameters: whether parameters and optimizer state are kept, too. Only a `step` changes these; for the others a
            copy would cost as much memory as the model.
    """

    def __init__(self, subject: Subject, *, parameters: bool | None = None) -> None:
        deep = subject.kind == "step" if parameters is None else parameters
        self._subject = subject
        self._modes = [(module, module.training) for module in subject.every_module()]
        kept = subject.buffers() + (subject.parameters() if deep else [])
        self._values = [(tensor, tensor.detach().clone()) for tensor in kept]
        self._grads = [(p, p.grad, None if p.grad is None else p.grad.clone()) for p in subject.parameters()]
        self._optimizers = [(optimizer, _optimizer_state(optimizer)) for optimizer in subject.found.optimizers]
        self._steppers = [(stepper, copy.deepcopy(stepper.state_dict())) for stepper in subject.found.steppers]
        self._trainable = [(parameter, parameter.requires_grad) for parameter in subject.parameters()]
        self._held = _Held(subject)
        self.generators = Generators(subject)
        self._random = self.generators.state()

    def restore(self) -> None:
        """Put everything back."""
        self._held.put_back()
        for parameter, trainable in self._trainable:
            if parameter.requires_grad != trainable:
                parameter.requires_grad_(trainable)
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.data.copy_(value)
            for parameter, grad, value in self._grads:
                parameter.grad = grad
                if grad is not None:
                    grad.copy_(value)
        for module, training in self._modes:
            if module.training != training:
                module.training = training
        for stepper, state in self._steppers:
            stepper.load_state_dict(copy.deepcopy(state))  # some take apart what they are given
        for optimizer, (state, groups) in self._optimizers:
            _restore_optimizer(optimizer, state, groups)
        self.restore_random()

    def restore_random(self) -> None:
        """Put the random number generators back."""
        self.generators.put_back(self._random)

    def written(self) -> list[tuple[str, Tensor]]:
        """Attributes of modules that are not what they were, by name; those that are gone count as None."""
        return self._held.written()

    def differing(self) -> list[str]:
        """Names of what modules hold besides values, parts and hooks included, that is not what it was."""
        return [name for name, _ in self.written()] + self._held.differing_parts()

    def attributes(self) -> list[tuple[str, Tensor]]:
        """Tensors among the modules' attributes, by name: they are neither parameters nor buffers."""
        return self._held.tensors


_CONTENTS = (list, dict, set, deque)
_ATTRIBUTE_DICTS = frozenset(
    {
        "_parameters",
        "_buffers",
        "_modules",
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
    }
)


class _Held:
    """What modules hold besides the values of parameters and buffers: attributes, parts, hooks.

    Attributes:
        tensors: among the attributes, by name.
    """

    def __init__(self, subject: Subject) -> None:
        self._names: list[str] = []
        self._dicts: list[dict[str, Any]] = []
        self._inner: list[dict[str, Any]] = []
        self._parts: list[str] = []
        for name, module in subject.named_modules():
            self._names.append(name)
            self._dicts.append(vars(module))
            inner = sorted(one for one in _ATTRIBUTE_DICTS if one in vars(module))
            self._inner += [vars(module)[one] for one in inner]
            self._parts += [f"{name}.{one}".lstrip(".") for one in inner]
        self._kept = [_attributes(held) for held in self._dicts]
        self._inside = [list(held.items()) for held in self._inner]
        # Containers are changed without their holder being changed.
        self._containers = [
            (value, copy.copy(value))
            for kept in self._kept
            for value in kept.values()
            if type(value) in _CONTENTS and not callable(value)
        ]
        self.tensors = [
            (f"{name}.{one}".lstrip("."), value)
            for name, kept in zip(self._names, self._kept, strict=True)
            for one, value in kept.items()
            if isinstance(value, torch.Tensor)
        ]
        self._values = [
            (tensor, tensor.detach().clone()) for _, tensor in self.tensors if tensor.layout is torch.strided
        ]
        self._changed = changed_among([*self._dicts, *self._inner])

    def written(self) -> list[tuple[str, Tensor]]:
        found: list[tuple[str, Any]] = []
        for at in [at for at in self._changed.which() if at < len(self._dicts)]:
            now, before = _attributes(self._dicts[at]), self._kept[at]
            for name in {**before, **now}:
                if name not in now or name not in before or now[name] is not before[name]:
                    found.append((f"{self._names[at]}.{name}".lstrip("."), now.get(name)))
        places = {id(value): f"{name}.{one}".lstrip(".") for name, kept in self._named() for one, value in kept.items()}
        for value, before in self._containers:
            if not _same_contents(value, before):
                found.append((places[id(value)], copy.copy(value)))
        return found

    def differing_parts(self) -> list[str]:
        first = len(self._dicts)
        pairs = [(self._inner[at - first], self._inside[at - first], at) for at in self._changed.which() if at >= first]
        return [self._parts[at - first] for held, before, at in pairs if not _same_contents(held, dict(before))]

    def _named(self) -> Any:
        return zip(self._names, self._kept, strict=True)

    def put_back(self) -> None:
        for at in list(self._changed.which()):
            if at < len(self._dicts):
                self._put_back_attributes(self._dicts[at], self._kept[at])
            else:
                held, items = self._inner[at - len(self._dicts)], self._inside[at - len(self._dicts)]
                if [(k, id(v)) for k, v in held.items()] != [(k, id(v)) for k, v in items]:
                    held.clear()
                    held.update(items)
            self._changed.settle(at)
        for value, before in self._containers:
            if not _same_contents(value, before):
                value.clear()
                value.extend(before) if isinstance(value, list | deque) else value.update(before)
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.data.copy_(value)

    def _put_back_attributes(self, held: dict[str, Any], kept: dict[str, Any]) -> None:
        for name in [name for name in _attributes(held) if name not in kept]:
            del held[name]
        for name, value in kept.items():
            if name not in held or held[name] is not value:
                held[name] = value


def _attributes(held: dict[str, Any]) -> dict[str, Any]:
    """Without what is kept elsewhere, and without what candidates change and undo themselves."""
    return {n: value for n, value in held.items() if n not in _ATTRIBUTE_DICTS and n not in ("training", "forward")}


def _same_contents(value: Any, before: Any) -> bool:
    if len(value) != len(before):
        return False
    if isinstance(value, set):
        return value == before
    if isinstance(value, dict):
        return all(k in before and before[k] is one for k, one in value.items())
    return all(a is b for a, b in zip(value, before, strict=True))


_FIRST_SEED = 918_273


def seed(subject: Subject, number: int) -> None:
    """Seed the generators of Python, NumPy, the host and the subject's device; not as programs do it, so that it shows."""
    number += _FIRST_SEED
    random.seed(number)
    _numpy.seed(number)
    torch.default_generator.manual_seed(number)
    if subject.cuda:
        with torch.cuda.device(subject.device):
            torch.cuda.manual_seed(number)


def _optimizer_state(optimizer: Optimizer) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    state = {key: map_tensors(lambda t: t.detach().clone(), dict(value)) for key, value in optimizer.state.items()}
    groups = [{k: copy.copy(v) for k, v in group.items() if k not in _NOT_STATE} for group in optimizer.param_groups]
    return state, groups


def _restore_optimizer(optimizer: Optimizer, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
    for key in [key for key in optimizer.state if key not in state]:
        del optimizer.state[key]
    for key, values in state.items():
        now = optimizer.state[key]
        for name, value in values.items():
            current = now.get(name)
            if isinstance(value, torch.Tensor) and isinstance(current, torch.Tensor) and current.shape == value.shape:
                with torch.no_grad():
                    current.copy_(value)
            else:
                now[name] = copy.copy(value)
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)
