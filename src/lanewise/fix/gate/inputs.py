"""Inputs that a fast path must survive besides the recorded ones: other values, other scales, constant rows, infinities,
NaN, memory that lies differently, and shapes that it was not made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.tensors import Call, drawing, map_tensors, tensors_of

__all__ = [
    "SHAPES",
    "VALUES",
    "Named",
    "adversarial",
    "has_floats",
    "jittered",
    "other_shapes",
    "other_values",
    "renewed",
    "shaken",
]

torch: Any = torch_part()

# Far from the seeds that people use: values drawn with the same one would be the recorded values once more.
_FIRST_SEED = 7_318_000
_MOST_DRAWS = 4
_JITTER = 0.05


class Named(NamedTuple):
    """A call with what is special about it."""

    name: str
    call: Call


def adversarial(call: Call, *, seeds: int) -> list[Named]:
    """Calls of the same kind with other values: every recipe with every seed, all recipes of a seed together.

    Recipes are about floating values; where there are none, they are all one.
    """
    recipes = _recipes(call)
    return [
        Named(f"{name}, seed {number}", _with(call, recipe, _FIRST_SEED + 1000 * number + at))
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


def has_floats(call: Call) -> bool:
    """Whether any argument has floating values."""
    return any(tensor.dtype.is_floating_point for tensor in tensors_of(call))


def shaken(call: Call) -> Call:
    """The call with floating inputs that are off by about one unit of roundoff."""

    def recipe(tensor: Any, generator: Any) -> Any:
        noise = _normal(tensor, generator).to(tensor.device, tensor.dtype)
        return tensor.detach() * (1 + noise * torch.finfo(tensor.dtype).eps)

    def one(tensor: Any) -> Any:
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
    """Calls that differ in shape or strides: they belong to the original program, and must get there."""
    made = [Named(name, map_tensors(recipe, call)) for name, recipe in SHAPES.items()]
    return [one for one in made if any(map(_differs, tensors_of(one.call), tensors_of(call)))]


def _recipes(call: Call) -> dict[str, Callable[[Any, Any], Any]]:
    return VALUES if has_floats(call) else {"whole numbers": _normal}


def _with(call: Call, recipe: Callable[[Any, Any], Any], number: int) -> Call:
    generators: dict[Any, Any] = {}

    def one(tensor: Any) -> Any:
        generator = generators.setdefault(tensor.device, drawing(tensor.device, number))
        if tensor.dtype.is_floating_point and tensor.numel():
            value = recipe(tensor, generator).to(tensor.dtype)
        elif tensor.numel() and not tensor.dtype.is_complex:
            value = _whole(tensor, generator)
        else:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return _filled(tensor, value)

    return map_tensors(one, call)


def _filled(tensor: Any, value: Any) -> Any:
    """A tensor of the same layout with these values."""
    placed = torch.empty_like(tensor.detach())
    placed.copy_(value)
    return placed.requires_grad_(tensor.requires_grad)


def _whole(tensor: Any, generator: Any) -> Any:
    """Other whole numbers between the smallest and the largest: what an index may be is known from the recorded ones."""
    low, high = int(tensor.min()), int(tensor.max())
    return torch.randint(low, high + 1, tuple(tensor.shape), generator=generator, device=generator.device).to(
        tensor.device, tensor.dtype
    )


def _normal(tensor: Any, generator: Any) -> Any:
    return torch.randn(tuple(tensor.shape), generator=generator, device=generator.device)


def _uniform(tensor: Any, generator: Any) -> Any:
    return torch.rand(tuple(tensor.shape), generator=generator, device=generator.device) * 2 - 1


def _large(tensor: Any, generator: Any) -> Any:
    return _normal(tensor, generator) * 1e3


def _small(tensor: Any, generator: Any) -> Any:
    return _normal(tensor, generator) * 1e-3


def _constant(tensor: Any, generator: Any) -> Any:
    if tensor.dim() == 0:
        return torch.rand((), generator=generator, device=generator.device)
    return torch.randn((*tensor.shape[:-1], 1), generator=generator, device=generator.device).expand(
        tuple(tensor.shape)
    )


def _speckled(value: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def recipe(tensor: Any, generator: Any) -> Any:
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
    "constant rows": _constant,
    "infinities": _speckled(lambda base: torch.copysign(torch.full_like(base, torch.inf), base)),
    "NaN": _speckled(lambda base: torch.full_like(base, torch.nan)),
}
"""What a recipe makes of a floating tensor; whole numbers are drawn between the recorded bounds."""


def _shorter(tensor: Any) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] < 2:
        return tensor
    return tensor.detach()[: tensor.shape[0] - 1].clone().requires_grad_(tensor.requires_grad)


def _longer(tensor: Any) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] < 1:
        return tensor
    plain = tensor.detach()
    return torch.cat([plain, plain[:1]]).requires_grad_(tensor.requires_grad)


def _strided(tensor: Any) -> Any:
    if tensor.dim() < 2:
        return tensor
    plain = tensor.detach()
    back = plain.transpose(-1, -2).contiguous().transpose(-1, -2)
    return back.requires_grad_(tensor.requires_grad)


def _differs(a: Any, b: Any) -> bool:
    return a.shape != b.shape or a.stride() != b.stride()


SHAPES: dict[str, Callable[[Any], Any]] = {"one row less": _shorter, "one row more": _longer, "other strides": _strided}
