"""The truth that results are held against: the same program in double precision."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.gate.observe import Names, Observation, cotangents, observe
from lanewise.fix.gate.tolerances import error_of
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call, map_tensors, tensors_of, values_of
from lanewise.fix.torch_types import Module, Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["Reference", "make_reference"]

_modes: Any = torch_part("torch.utils._python_dispatch")


class Truth(NamedTuple):
    """What the reference says of one call."""

    outputs: list[Tensor]
    gradients: list[Tensor | None]
    buffers: list[Tensor]
    left: list[tuple[str, Any]]
    names: Names

    def values(self) -> list[tuple[str, Tensor]]:
        """Every tensor with its name, as in an `Observation`."""
        named = [(f"output {at}", tensor) for at, tensor in enumerate(self.outputs)]
        named += [(n, t) for n, t in zip(self.names.gradients, self.gradients, strict=False) if t is not None]
        named += list(zip(self.names.buffers, self.buffers, strict=False))
        return named + [(f"attribute {name} after the call", t) for name, one in self.left for t in tensors_of(one)]


class Reference:
    """Runs calls in double precision.

    Attributes:
        what: how it is computed, for the report.
    """

    def __init__(self, subject: Subject, what: str, twin: Any = None) -> None:
        self.what = what
        self._subject = subject
        self._twin: Any = twin

    @property
    def itself(self) -> bool:
        """Whether the original program has to be its own reference."""
        return self._twin is None and not self.what.startswith("double")

    def named(self, call: Call, eager: Observation, *, mode: bool | None = None) -> dict[str, Any]:
        """What is known to be true of a call, by name of the value: nothing where the program is its own reference.

        Args:
            mode: of training, if not the one that the program is in.
        """
        if self.itself:
            return {}
        if self._twin is None:
            return dict(Truth(self.of(call, eager).outputs, [], [], [], eager.names).values())
        modes = [(module, module.training) for module in self._twin.modules()]
        try:
            if mode is not None:
                self._twin.train(mode)
            return dict(self.of(call, eager).values())
        finally:
            for module, training in modes:
                module.training = training

    def of(self, call: Call, eager: Observation, *, layout: str = "contiguous") -> Truth:
        """The truth about a call; that of `eager` where there is no other."""
        if self.itself:
            return Truth(eager.outputs, eager.gradients, eager.buffers, eager.left, eager.names)
        with suppress(torch.OutOfMemoryError):
            return self._in_double(call, eager, layout)
        self._twin, self.what = None, "the program itself: double precision does not fit into memory"
        return self.of(call, eager)

    def _in_double(self, call: Call, eager: Observation, layout: str) -> Truth:
        doubled = map_tensors(_double, copy_call(call))
        if self._twin is None:
            outputs = _upcast_run(self._subject, copy_call(call))
            return Truth(outputs, eager.gradients, eager.buffers, eager.left, eager.names)
        buffers = [(buffer, buffer.clone()) for buffer in self._twin.buffers()]
        attributes = [(module, dict(vars(module))) for module in self._twin.modules()]
        try:
            seed(self._subject, 0)
            outputs = tensors_of(self._twin(*doubled[0], **doubled[1]))
            left = [(name, _attribute(self._twin, name)) for name, _ in eager.left]
            gradients: list[Tensor | None] = []
            if self._subject.kind == "training":
                gradients = self._gradients(outputs, tensors_of([one for _, one in left]), doubled, layout, eager)
            after = [values_of(buffer) for buffer in self._twin.buffers()]
            left = [(name, map_tensors(values_of, one)) for name, one in left]
            return Truth([values_of(tensor) for tensor in outputs], gradients, after, left, eager.names)
        finally:
            for module, held in attributes:
                vars(module).clear()
                vars(module).update(held)
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.data.copy_(value)

    def _gradients(
        self, outputs: Sequence[Tensor], left: Sequence[Any], call: Call, layout: str, eager: Observation
    ) -> list[Tensor | None]:
        # Rounded as the original program gets them.
        dtypes = [tensor.dtype for tensor, carries in zip(eager.outputs, eager.carries_grad, strict=True) if carries]
        mine = tensors_of([one for _, one in eager.left])
        dtypes += [tensor.dtype for tensor, twin in zip(mine, left, strict=True) if twin.requires_grad]
        roots = [tensor for tensor in (*outputs, *left) if tensor.requires_grad]
        wanted = [tensor for tensor in tensors_of(call) if tensor.requires_grad and tensor.is_leaf]
        seen: dict[int, Any] = {}
        for parameter in self._twin.parameters():
            seen.setdefault(id(parameter), parameter)
        wanted += [parameter for parameter in seen.values() if parameter.requires_grad]
        if not roots or not wanted:
            return []
        back = cotangents(roots, layout, dtypes)
        found = list[Tensor | None](torch.autograd.grad(roots, wanted, back, allow_unused=True))
        return [None if tensor is None else values_of(tensor) for tensor in found]


def make_reference(subject: Subject, state: State) -> Reference:
    """The best reference that this program allows; one that cannot be right is not used.

    Raises whatever the program itself raises on its first recorded call.
    """
    eager = observe(subject, subject.calls[0], state)
    if subject.random:
        return Reference(subject, "the program itself, with the same random numbers")
    for what, make in (
        ("a copy of the module in double precision", _copied),
        ("double precision, operator by operator", _nothing),
    ):
        usable = subject.module is not None if make is _copied else subject.kind != "training"
        if not usable:
            continue
        try:
            reference = Reference(subject, what, make(subject))
            truth = reference.of(subject.calls[0], eager)
        except Exception:
            continue
        finally:
            state.restore()
        if _plausible(truth.outputs, eager.outputs):
            return reference
    return Reference(subject, "the program itself: it does not run in double precision")


def _plausible(truth: Sequence[Any], eager: Sequence[Any]) -> bool:
    """Whether the double precision run computes the same thing: same shapes, and values alike within half precision."""
    if len(truth) != len(eager):
        return False
    for a, b in zip(truth, eager, strict=True):
        if a.shape != b.shape:
            return False
        if b.dtype.is_floating_point and b.numel():
            limit = 64 * float(torch.finfo(b.dtype).eps) ** 0.5
            if error_of(b, a).norm > limit:
                return False
    return True


def _attribute(module: Module, path: str) -> Any:
    *parts, name = path.split(".")
    for part in parts:
        module = getattr(module, part)
    return vars(module).get(name)


def _copied(subject: Subject) -> Any:
    def wide(tensor: Tensor) -> Any:
        return tensor.to(_wider(tensor.dtype))

    return copy.deepcopy(subject.module)._apply(wide)


def _nothing(subject: Subject) -> None:
    return None


def _double(tensor: Tensor) -> Any:
    wide = _wider(tensor.dtype)
    return tensor if wide is tensor.dtype else tensor.detach().to(wide).requires_grad_(tensor.requires_grad)


class _Upcast(_modes.TorchDispatchMode):
    """Every operator computes in double precision. What the program holds is never written to: a tensor that comes from
    outside is replaced by a double of it, which in-place operators then change in its place."""

    def __init__(self) -> None:
        super().__init__()
        self._doubles: dict[int, tuple[Any, Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return func(*map_tensors(self._double, tuple(_wider(arg) for arg in args)), **map_tensors(self._double, wide))

    def _double(self, tensor: Tensor) -> Any:
        wide = _wider(tensor.dtype)
        if wide is tensor.dtype:
            return tensor
        if id(tensor) not in self._doubles:
            self._doubles[id(tensor)] = (tensor, tensor.to(wide))
        return self._doubles[id(tensor)][1]


def _wider(value: Any) -> Any:
    """For a type of real or complex numbers that in double precision; any other value as it is."""
    if not isinstance(value, torch.dtype):
        return value
    return torch.float64 if value.is_floating_point else torch.complex128 if value.is_complex else value


def _upcast_run(subject: Subject, call: Call) -> list[Any]:
    seed(subject, 0)
    with torch.no_grad(), _Upcast():
        outputs = tensors_of(subject.entry(*call[0], **call[1]))
    return [values_of(tensor) for tensor in outputs]
