"""Values made of tensors: the tensors in them, copies that keep layout and sharing, and what they share with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lanewise.record.torched import torch_part

__all__ = [
    "Call",
    "copy_call",
    "copy_tensor",
    "drawing",
    "flatten",
    "map_tensors",
    "same_bits",
    "sharing",
    "tensors_of",
    "why_not_comparable",
]

torch: Any = torch_part()
_pytree: Any = torch_part("torch.utils._pytree")

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


def flatten(value: Any) -> list[Any]:
    """The leaves of nested containers, in a fixed order."""
    return list(_pytree.tree_flatten(value)[0])


def tensors_of(value: Any) -> list[Any]:
    """The tensors in a value, in a fixed order."""
    return [leaf for leaf in flatten(value) if isinstance(leaf, torch.Tensor)]


def why_not_comparable(tensors: Sequence[Any]) -> str:
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
    """The value with every tensor replaced; a tensor that occurs twice is replaced once."""
    done: dict[int, Any] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in done:
            done[id(leaf)] = change(leaf)
        return done[id(leaf)]

    return _pytree.tree_map(one, value)


def copy_tensor(tensor: Any) -> Any:
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
            copy.copy_(plain)
    return copy.requires_grad_(tensor.requires_grad)


def copy_call(call: Call) -> Call:
    """The call with copies of its tensors."""
    return map_tensors(copy_tensor, call)


def drawing(device: Any, number: int) -> Any:
    """A generator of random numbers with this seed, on the device: drawing on the host and sending takes far longer."""
    return torch.Generator(device=device if device.type == "cuda" else "cpu").manual_seed(number)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors are equal in every bit that matters: type, shape and values, NaN equal to NaN."""
    if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
        return False
    if torch.equal(a, b):
        return True
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a != a, b != b))
    return False


def _memory(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr()) if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        return 0


def sharing(outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[tuple[int, int], ...]:
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
