"""`State`: what running a program changes, kept so that it can be put back: parameters, buffers, gradients, states of
optimizers, schedules and gradient scalers, modes and random numbers. Everything is put back in place: references that the
program holds stay valid."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors

__all__ = ["State", "seed"]

torch: Any = torch_part()

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
        self._random = torch.get_rng_state()
        self._host_random = random.getstate(), _numpy.get_state()
        self._device_random = torch.cuda.get_rng_state(subject.device) if subject.cuda else None

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.data.copy_(value)
            for parameter, grad, value in self._grads:
                parameter.grad = grad
                if grad is not None:
                    grad.copy_(value)
        for module, training in self._modes:
            module.training = training
        for stepper, state in self._steppers:
            stepper.load_state_dict(copy.deepcopy(state))  # some take apart what they are given
        for optimizer, (state, groups) in self._optimizers:
            _restore_optimizer(optimizer, state, groups)
        self.restore_random()

    def restore_random(self) -> None:
        """Put the random number generators back."""
        torch.set_rng_state(self._random)
        random.setstate(self._host_random[0])
        _numpy.set_state(self._host_random[1])
        if self._device_random is not None:
            torch.cuda.set_rng_state(self._device_random, self._subject.device)


def seed(subject: Subject, number: int) -> None:
    """Seed the generators of Python, NumPy, the host and the subject's device."""
    random.seed(number)
    _numpy.seed(number)
    torch.random.default_generator.manual_seed(number)
    if subject.cuda:
        with torch.cuda.device(subject.device):
            torch.cuda.manual_seed(number)


def _optimizer_state(optimizer: Any) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    state = {key: map_tensors(lambda t: t.detach().clone(), dict(value)) for key, value in optimizer.state.items()}
    groups = [{k: copy.copy(v) for k, v in group.items() if k not in _NOT_STATE} for group in optimizer.param_groups]
    return state, groups


def _restore_optimizer(optimizer: Any, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
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
