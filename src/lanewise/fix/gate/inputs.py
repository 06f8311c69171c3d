"""Inputs that a fast path must survive besides the recorded ones: other values, other scales, constant rows, infinities,
NaN, memory that lies differently, and shapes that it was not made for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lanewise.fix.tensors import Call, drawing, map_tensors, tensors_of
from lanewise.fix.torch_types import Generator, Tensor
from lanewise.fix.typed_torch import torch

__all__ = [
    "SHAPES",
    "VALUES",
    "Named",
    "adversarial",
    "has_floats",
    "jittered",
    "large_values",
    "near",
    "not_finite",
    "other_shapes",
    "other_values",
    "out_of_range",
    "renewed",
    "shaken",
]


# Far from the seeds that people use: values drawn with the same one would be the recorded values once more.
_FIRST_SEED = 7_318_000
_MOST_DRAWS = 4
_JITTER = 0.05
_MOST_REPEATED = 1 << 20
"""Elements of a tensor that is repeated."""


class Named(NamedTuple):
    """A call with what is special about it; it is made when it is asked for, as dozens may not fit into memory at once."""

    name: str
    make: Callable[[], Call]


def adversarial(call: Call, *, seeds: int) -> list[Named]:
    """Calls of the same kind with other values: every recipe with every seed, all recipes of a seed together.

    Recipes are about floating values; where there are none, they are all one.
    """
    recipes = _recipes(call)
    return [
        Named(f"{name}, seed {number}", partial(_with, call, recipe, _FIRST_SEED + 1000 * number + at))
        for number in range(seeds)
        for at, (name, recipe) in enumerate(recipes.items())
    ]


def other_values(call: Call) -> Call:
    """A call of the same kind with ordinary values, of which every tensor differs from the given one where that can be."""
    made = call
    for number in range(_MOST_DRAWS):
        made = _with(call, _normal, _FIRST_SEED + number)
        if not any(torch.equal(a, b) for a, b in zip(tensors_of(made), tensors_of(call), strict=True)):
            break
    return made


def large_values(call: Call) -> Call:
    """A call of the same kind with floating values a thousand times as large as ordinary ones."""
    return _with(call, VALUES["scale 1e3"], _FIRST_SEED)


def not_finite(call: Call) -> Call:
    """A call of the same kind with infinities among its floating values."""
    return _with(call, VALUES["infinities"], _FIRST_SEED)


def has_floats(call: Call) -> bool:
    """Whether any argument has floating or complex values."""
    return any(tensor.dtype.is_floating_point or tensor.dtype.is_complex for tensor in tensors_of(call))


def shaken(call: Call) -> Call:
    """The call with floating inputs that are off by about one unit of roundoff."""

    def recipe(tensor: Tensor, generator: Generator) -> Any:
        noise = _normal(tensor, generator).to(tensor.device, tensor.dtype)
        return tensor.detach() * (1 + noise * torch.finfo(tensor.dtype).eps)

    def one(tensor: Tensor) -> Any:
        if not tensor.dtype.is_floating_point:
            return tensor.detach().clone()
        return _filled(tensor, recipe(tensor, drawing(tensor.device, 7)))

    return map_tensors(one, call)


def jittered(call: Call, recorded: Call, number: int) -> None:
    """Give a call's floating tensors the recorded values, each changed by a few per cent; in place, so addresses stay."""
    for mine, value in zip(tensors_of(call), tensors_of(recorded), strict=True):
        if mine.dtype.is_floating_point:
            generator = drawing(mine.device, number & 0xFFFFFFFF)
            noise = torch.randn(tuple(mine.shape), generator=generator, device=generator.device)
            noise = noise.mul_(_JITTER).add_(1)
            mine.data.copy_(value.detach() * noise.to(value.device, value.dtype))


def renewed(call: Call, recorded: Call, number: int) -> None:
    """As `jittered`, with values that `jittered` does not draw; where there are none, whole numbers change places."""
    jittered(call, recorded, _FIRST_SEED + number)
    if has_floats(recorded):
        return
    for mine, value in zip(tensors_of(call), tensors_of(recorded), strict=True):
        generator = drawing(mine.device, _FIRST_SEED + number)
        order = torch.randperm(mine.numel(), generator=generator, device=generator.device).to(value.device)
        mine.data.copy_(value.detach().flatten()[order].view(mine.shape))


def other_shapes(call: Call) -> list[Named]:
    """Calls that differ in shape, strides or place in memory: they belong to the original program, and must get there."""
    made = [Named(name, partial(map_tensors, recipe, call)) for name, recipe in SHAPES.items()]
    made = [one for one in made if any(map(_differs, tensors_of(one.make()), tensors_of(call)))]
    return made + _same_tensor_twice(call)


def near(call: Call) -> list[Named]:
    """Calls that are nearly the same: what is remembered of the last one must not be given again."""
    if not tensors_of(call):
        return []
    recipes = {"a thousandth more": _little_more} if has_floats(call) else {}
    recipes |= {"one value changed": _one_changed, "its rows in another order": _turned}
    made = [Named(name, partial(map_tensors, recipe, call)) for name, recipe in recipes.items()]
    return [one for one in made if not all(map(torch.equal, tensors_of(one.make()), tensors_of(call)))]


def out_of_range(call: Call) -> list[Named]:
    """Whole numbers far above what was recorded, and below zero: the original may refuse them, and then so must others."""
    whole = [t for t in tensors_of(call) if _is_index(t)]
    if not whole:
        return []

    def above(tensor: Tensor) -> Any:
        return 2 * tensor.abs() + 2 * int(tensor.max()) + 2 if _is_index(tensor) else tensor.detach().clone()

    def below(tensor: Tensor) -> Any:
        return -tensor.abs() - int(tensor.abs().max()) - 1 if _is_index(tensor) else tensor.detach().clone()

    recipes = {"values above": above, "values below zero": below}
    return [Named(name, partial(map_tensors, recipe, call)) for name, recipe in recipes.items()]


def _is_index(tensor: Tensor) -> bool:
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype is not torch.bool
    return whole and tensor.dtype.itemsize >= 4 and bool(tensor.numel())


def _one_changed(tensor: Tensor) -> Any:
    changed = _filled(tensor, tensor.detach())
    if not tensor.numel():
        return changed
    at = tuple(size // 2 for size in tensor.shape)
    with torch.no_grad():
        if tensor.dtype is torch.bool:
            changed[at] = ~changed[at]
        elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            changed[at] = changed[at] + 1
        else:
            changed[at] = tensor.min() if bool(changed[at] != tensor.min()) else tensor.max()
    return changed


def _little_more(tensor: Tensor) -> Any:
    return _filled(tensor, tensor.detach() * 1.001 if tensor.dtype.is_floating_point else tensor.detach())


def _turned(tensor: Tensor) -> Any:
    return _filled(tensor, tensor.detach().flip(0) if tensor.dim() else tensor.detach())


def _same_tensor_twice(call: Call) -> list[Named]:
    """The first tensor also in the place of others that look like it."""
    tensors = tensors_of(call)
    like = [t for t in tensors[1:] if t.shape == tensors[0].shape and t.dtype == tensors[0].dtype]
    if not like or any(t is tensors[0] for t in like):
        return []
    same = {id(tensors[0]), *map(id, like)}
    return [Named("the same tensor twice", partial(map_tensors, lambda t: tensors[0] if id(t) in same else t, call))]


def _recipes(call: Call) -> dict[str, Callable[[Any, Any], Any]]:
    return VALUES if has_floats(call) else {"whole numbers": _normal}


def _with(call: Call, recipe: Callable[[Any, Any], Any], number: int) -> Call:
    generators: dict[Any, Any] = {}

    def one(tensor: Tensor) -> Any:
        generator = generators.setdefault(tensor.device, drawing(tensor.device, number))
        if tensor.dtype.is_floating_point and tensor.numel():
            value = recipe(tensor, generator).to(tensor.dtype)
        elif tensor.dtype.is_complex and tensor.numel():
            value = torch.complex(recipe(tensor, generator), recipe(tensor, generator)).to(tensor.dtype)
            # The parts of a sum of infinite complex numbers are infinite or NaN by its order: no candidate is held to that.
            value = torch.where(torch.isfinite(value), value, torch.ones_like(value))
        elif tensor.numel():
            value = _whole(tensor, generator)
        else:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return _filled(tensor, value)

    return map_tensors(one, call)


def _filled(tensor: Tensor, value: Any) -> Any:
    """A tensor of the same layout with these values."""
    placed = torch.empty_like(tensor.detach())
    placed.copy_(value)
    return placed.requires_grad_(tensor.requires_grad)


def _whole(tensor: Tensor, generator: Generator) -> Any:
    """Other whole numbers between the smallest and the largest: what an index may be is known from the recorded ones."""
    low, high = int(tensor.min()), int(tensor.max())
    if low == high or tensor.dtype is torch.bool:
        # All the same (a mask, a length) is no constant: what is allowed in its place is less, or nothing.
        low, high = min(low, 0), max(high, 1) if high in (0, 1) else high
    return torch.randint(low, high + 1, tuple(tensor.shape), generator=generator, device=generator.device).to(
        tensor.device, tensor.dtype
    )


def _normal(tensor: Tensor, generator: Generator) -> Any:
    return torch.randn(tuple(tensor.shape), generator=generator, device=generator.device)


def _uniform(tensor: Tensor, generator: Generator) -> Any:
    return torch.rand(tuple(tensor.shape), generator=generator, device=generator.device) * 2 - 1


def _large(tensor: Tensor, generator: Generator) -> Any:
    return _normal(tensor, generator) * 1e3


def _small(tensor: Tensor, generator: Generator) -> Any:
    return _normal(tensor, generator) * 1e-3


def _moderate(tensor: Tensor, generator: Generator) -> Any:
    return _normal(tensor, generator) * 30


def _signed_zeros(tensor: Tensor, generator: Generator) -> Any:
    value = _normal(tensor, generator)
    return torch.where(value.abs() < 1, torch.copysign(torch.zeros_like(value), value), value)


def _quarters(tensor: Tensor, generator: Generator) -> Any:
    """Where rounding, floors and comparisons change."""
    return (4 * _normal(tensor, generator)).round() / 4


def _constant(tensor: Tensor, generator: Generator) -> Any:
    if tensor.dim() == 0:
        return torch.rand((), generator=generator, device=generator.device)
    return torch.randn((*tensor.shape[:-1], 1), generator=generator, device=generator.device).expand(
        tuple(tensor.shape)
    )


def _speckled(value: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def recipe(tensor: Tensor, generator: Generator) -> Any:
        base = _normal(tensor, generator)
        chosen = torch.rand(tuple(tensor.shape), generator=generator, device=generator.device) < 1 / min(
            16, max(2, tensor.numel())
        )
        return torch.where(chosen, value(base), base)

    return recipe


VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "normal": _normal,
    "uniform": _uniform,
    "scale 1e3": _large,
    "scale 1e-3": _small,
    "scale 30": _moderate,
    "zeros of both signs": _signed_zeros,
    "quarters": _quarters,
    "constant rows": _constant,
    "infinities": _speckled(lambda base: torch.copysign(torch.full_like(base, torch.inf), base)),
    "NaN": _speckled(lambda base: torch.full_like(base, torch.nan)),
}
"""What a recipe makes of a floating tensor; whole numbers are drawn between the recorded bounds."""


def _shorter(tensor: Tensor) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] < 2:
        return tensor
    return tensor.detach()[: tensor.shape[0] - 1].clone().requires_grad_(tensor.requires_grad)


def _longer(tensor: Tensor) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] < 1:
        return tensor
    plain = tensor.detach()
    return torch.cat([plain, plain[:1]]).requires_grad_(tensor.requires_grad)


def _one_row(tensor: Tensor) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] < 2:
        return tensor
    return tensor.detach()[:1].clone().requires_grad_(tensor.requires_grad)


def _no_rows(tensor: Tensor) -> Any:
    if tensor.dim() == 0:
        return tensor
    return tensor.detach()[:0].clone().requires_grad_(tensor.requires_grad)


def _many_rows(tensor: Tensor) -> Any:
    if tensor.dim() == 0 or tensor.numel() > _MOST_REPEATED:
        return tensor
    return torch.cat([tensor.detach()] * 8).requires_grad_(tensor.requires_grad)


def _misaligned(tensor: Tensor) -> Any:
    """In memory that does not begin where kernels that read several values at once want it; on the host only."""
    plain = tensor.detach()
    if plain.device.type != "cpu" or not plain.is_contiguous() or not plain.numel():
        return tensor
    around = torch.empty(plain.numel() + 1, dtype=plain.dtype)
    placed = around[1:].view(plain.shape)
    placed.copy_(plain)
    return placed.requires_grad_(tensor.requires_grad)


def _strided(tensor: Tensor) -> Any:
    if tensor.dim() < 2:
        return tensor
    plain = tensor.detach()
    back = plain.transpose(-1, -2).contiguous().transpose(-1, -2)
    return back.requires_grad_(tensor.requires_grad)


def _differs(a: Any, b: Any) -> bool:
    return a.shape != b.shape or a.stride() != b.stride() or a.storage_offset() != b.storage_offset()


SHAPES: dict[str, Callable[[Any], Any]] = {
    "one row less": _shorter,
    "one row more": _longer,
    "one row only": _one_row,
    "no rows": _no_rows,
    "eight times the rows": _many_rows,
    "other strides": _strided,
    "memory that is not aligned": _misaligned,
}
