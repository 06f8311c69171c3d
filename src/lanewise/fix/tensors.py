"""Values made of tensors: the tensors in them, copies that keep layout and sharing, and what they share with others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.torch_types import Device, Generator, Tensor
from lanewise.fix.typed_torch import torch

__all__ = [
    "Call",
    "Made",
    "copy_call",
    "copy_tensor",
    "drawing",
    "flatten",
    "map_tensors",
    "same_bits",
    "sharing",
    "tensors_of",
    "values_of",
    "why_not_comparable",
]

_pytree: Any = torch_part("torch.utils._pytree")

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""

_PLAIN = (torch.Tensor, torch.nn.Parameter, bool, int, float, str, bytes, type(None))
"""What most leaves are; the guard of every patched call asks."""

_DEPTH = 4
"""How many objects may lie inside each other; what is deeper counts as one value."""

_WHOLE: tuple[type, ...] = (torch.Tensor, torch.optim.Optimizer, Enum)


class Made(NamedTuple):
    """A leaf that stands for an object with tensors in it: its class and the form of its attributes, which follow."""

    kind: type
    form: str


def flatten(value: Any) -> list[Any]:
    """The leaves of nested containers and of objects that hold tensors (dataclasses, caches), in a fixed order."""
    leaves = list(_pytree.tree_flatten(value)[0])
    return leaves if all(type(leaf) in _PLAIN for leaf in leaves) else _flatten(value, ())


def _flatten(value: Any, around: tuple[int, ...]) -> list[Any]:
    leaves: list[Any] = []
    for leaf in _pytree.tree_flatten(value)[0]:
        inside = _attributes(leaf, around)
        if inside is not None:
            form = str(_pytree.tree_flatten(inside)[1])
            leaves += [Made(type(leaf), form), *_flatten(inside, (*around, id(leaf)))]
        else:
            leaves.append(Made(type(leaf), "around this") if id(leaf) in around else leaf)
    return leaves


def _attributes(leaf: Any, around: tuple[int, ...]) -> dict[str, Any] | None:
    """Attributes, by name, of an object that is data with tensors in it; None for a value by itself, and for what does
    something: modules, optimizers, functions, and objects that hold such.

    Args:
        around: identities of the objects in which it lies.
    """
    if type(leaf) in _PLAIN or isinstance(leaf, _WHOLE) or callable(leaf):
        return None
    if len(around) == _DEPTH or id(leaf) in around:
        return None
    if dataclasses.is_dataclass(leaf):
        found = {one.name: getattr(leaf, one.name) for one in dataclasses.fields(leaf) if hasattr(leaf, one.name)}
    else:
        found = dict(sorted(getattr(leaf, "__dict__", {}).items()))
    inside = _pytree.tree_flatten(found)[0]
    if any(isinstance(one, torch.nn.Module | torch.optim.Optimizer) for one in inside):
        return None
    within = (*around, id(leaf))
    holds = any(isinstance(one, torch.Tensor) or _attributes(one, within) is not None for one in inside)
    return found if holds else None


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in a value, in a fixed order."""
    return [leaf for leaf in flatten(value) if isinstance(leaf, torch.Tensor)]


def why_not_comparable(tensors: Sequence[Tensor]) -> str:
    """Why the values of tensors cannot be compared, "" if all can: some are sparse, or have no values at all."""
    for tensor in tensors:
        if tensor.device.type == "meta":
            return "tensors on the meta device have no values to compare"
        if tensor.layout is not torch.strided:
            return (
                f"tensors of layout {str(tensor.layout).removeprefix('torch.')} cannot be compared yet, only dense ones"
            )
    return ""


def map_tensors(change: Callable[[Any], Any], value: Any) -> Any:
    """The value with every tensor replaced; what occurs twice is replaced once. Objects that hold tensors are copied."""
    return _mapped(value, (), change, {})


def _mapped(value: Any, around: tuple[int, ...], change: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    # Not a function inside of `map_tensors`: one that calls itself would hold `done` until garbage is collected, and with
    # it tensors of gigabytes.
    def one(leaf: Any) -> Any:
        if id(leaf) in done:
            return done[id(leaf)]
        if isinstance(leaf, torch.Tensor):
            done[id(leaf)] = change(leaf)
            return done[id(leaf)]
        inside = _attributes(leaf, around)
        if inside is None:
            return leaf
        made = done[id(leaf)] = copy.copy(leaf)
        within = (*around, id(leaf))
        for name, attribute in inside.items():
            object.__setattr__(made, name, _mapped(attribute, within, change, done))  # a frozen dataclass, too
        return made

    return _pytree.tree_map(one, value)


def copy_tensor(tensor: Tensor) -> Tensor:
    """A copy with the same values, strides and `requires_grad`, in memory of its own."""
    with torch.no_grad():
        plain = tensor.detach()
        # An expanded tensor overlaps with itself: its copy is dense.
        overlaps = any(stride == 0 and size > 1 for stride, size in zip(plain.stride(), plain.shape, strict=True))
        if plain.layout is not torch.strided or overlaps:
            copy = plain.clone()
        else:
            # Strides that leave gaps (a slice) need more memory than elements.
            copy = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=plain.device)
            if plain.data_ptr() % 16 and copy.numel():  # what is not aligned stays so
                copy = torch.empty(
                    copy.untyped_storage().nbytes() // copy.itemsize + 1, dtype=copy.dtype, device=copy.device
                )
                copy = copy.as_strided(plain.shape, plain.stride(), 1)
            copy.copy_(plain)
    return copy.requires_grad_(tensor.requires_grad)


def copy_call(call: Call) -> Call:
    """The call with copies of its tensors."""
    return map_tensors(copy_tensor, call)


def values_of(tensor: Tensor) -> Tensor:
    """A copy of a tensor to compare: without a graph, and with two real numbers for a complex one."""
    copied = tensor.detach().clone()
    return torch.view_as_real(copied.resolve_conj()) if copied.dtype.is_complex else copied


def drawing(device: Device, number: int) -> Generator:
    """A generator of random numbers with this seed, on the device: drawing on the host and sending takes far longer."""
    return torch.Generator(device=device if device.type == "cuda" else "cpu").manual_seed(number)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal in every bit that matters: type, shape and values, NaN equal to NaN."""
    if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
        return False
    if torch.equal(a, b):
        return True
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a != a, b != b))
    return False


def _memory(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr()) if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        return 0


def sharing(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[tuple[int, int], ...]:
    """Which outputs share memory: pairs (output, input), and (output, -1 - earlier output)."""
    pairs: list[tuple[int, int]] = []
    from_input = [_memory(tensor) for tensor in inputs]
    from_output = [_memory(tensor) for tensor in outputs]
    for at, memory in enumerate(from_output):
        if not memory:
            continue
        pairs += [(at, place) for place, other in enumerate(from_input) if other == memory]
        pairs += [(at, -1 - place) for place, other in enumerate(from_output[:at]) if other == memory]
    return tuple(pairs)
