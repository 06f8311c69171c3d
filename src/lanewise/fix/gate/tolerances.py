"""How far results are from the truth, and how far they may be.

A result passes if its error against the reference is at most twice that of the original program in the same precision, or
below a small floor; in the largest difference over the largest value, and in the relative L2 norm. NaN and infinities
must be where the original has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lanewise.fix.torch_types import DType
from lanewise.fix.typed_torch import torch

__all__ = ["NOISE", "Error", "allowed", "allowed_noise", "error_of", "floor_of", "other_masks", "rounded", "worst"]


_FACTOR = 2.0
# In units of the roundoff of the type: what reordering a few operations may cost where the original happens to be exact.
_FLOOR_SINGLE, _FLOOR_HALF = 8.0, 1.0
_SUMMED = 4.0


# A value that is small beside the largest (a small probability) may be wrong without any of these showing it.
_SMALL_FACTOR, _SMALL_FLOOR = 4.0, 64.0
_BANDS = ((1e-6, 1e-3), (1e-12, 1e-6), (0.0, 1e-12))
_MANY_IN_BAND, _MOST_FOR_BANDS = 32, 1 << 22
# Of fewer values the error differs more by chance: of eight by a factor of 9 once in a million times (F distribution).
_FEW_IN_BAND, _FEW_FACTOR = 8, 16.0

_MOST_AT_ONCE = 1 << 22
"""Elements that are looked at in double precision at a time."""

NOISE = 0.05
"""A gradient whose error in the original is larger than this, in norm, has no digit that is right: its true value is zero,
or nearly so, beside what was summed to make it."""

_NOISE_FACTOR = 16.0

_NOTHING = 0.5
"""Of its size: a value that is off by more in the original says nothing but how large rounding is (a mean of what has just
been normalised). Zeros would be nearer to the truth than either."""


class Error(NamedTuple):
    """Relative errors against a reference: largest difference over largest value, and L2 norm over L2 norm; and the latter
    among values that are small beside the largest, the worst of a few sizes: where there are many of a size, and few."""

    largest: float
    norm: float
    small: float = 0.0
    few: float = 0.0

    def within(self, limit: Error) -> bool:
        """Whether none is above its limit. NaN is not."""
        return all(mine <= most for mine, most in zip(self, limit, strict=True))

    def of_large(self) -> Error:
        """Without what is small beside the largest."""
        return Error(self.largest, self.norm)


def error_of(found: Any, reference: Any) -> Error:
    """Error of a tensor, over the elements that are finite in both; 0 where there are none."""
    if found.numel() == 0:
        return Error(0.0, 0.0)
    scale = length = largest = norm = 0.0
    for difference, truth in map(_difference, *_pieces(found.detach(), reference.detach())):
        scale, length = max(scale, float(truth.abs().max())), math.hypot(length, float(truth.norm()))
        largest, norm = max(largest, float(difference.abs().max())), math.hypot(norm, float(difference.norm()))
    if scale == 0.0:
        # Where all of the truth is zero, an error has no scale: it is one, or none.
        return Error(0.0 if largest == 0.0 else math.inf, 0.0 if norm == 0.0 else math.inf)
    small = _FEW_IN_BAND <= found.numel() <= _MOST_FOR_BANDS and found.dtype.is_floating_point
    among_small = _among_small(*_difference(found, reference), scale, found.dtype) if small else ()
    return Error(largest / scale, norm / length, *among_small)


def _pieces(found: Any, reference: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Both tensors in the same pieces, views of them: in double precision a whole one may be more than memory has left."""
    count = -(-found.numel() // _MOST_AT_ONCE)
    if count <= 1:
        return (found,), (reference,)
    longest = max(range(found.dim()), key=lambda dim: found.shape[dim])
    return found.chunk(count, longest), reference.chunk(count, longest)


def _difference(found: Any, reference: Any) -> tuple[Any, Any]:
    """Found less true, and true, in double precision; zeros where one of them is not finite."""
    a, b = found.detach().to(torch.float64), reference.detach().to(found.device, torch.float64)
    finite = torch.isfinite(a) & torch.isfinite(b)
    return torch.where(finite, a - b, 0.0), torch.where(finite, b, 0.0)


def _among_small(difference: Any, truth: Any, scale: float, dtype: DType) -> tuple[float, float]:
    """The worst of the sizes that many values have, and of those that few have."""
    # What is below the smallest normal number may be flushed to zero.
    size, least = truth.abs() / scale, float(torch.finfo(dtype).tiny) / scale
    many = few = 0.0
    for low, high in _BANDS:
        inside = (size > max(low, least)) & (size <= high)
        count = int(inside.sum())
        if count >= _FEW_IN_BAND:
            error = float(difference[inside].norm()) / float(truth[inside].norm())
            many, few = (max(many, error), few) if count >= _MANY_IN_BAND else (many, max(few, error))
    return many, few


def rounded(found: Any, reference: Any) -> bool:
    """Whether a tensor is the reference, rounded to its type: no error that ever counts, and quickly found out."""
    return bool(torch.equal(found.detach(), reference.detach().to(found.device, found.dtype)))


def worst(errors: Iterable[Error]) -> Error:
    """The largest of each; zeros if there are none."""
    found = [Error(0.0, 0.0), *errors]
    return Error(*(max(values) for values in zip(*found, strict=True)))


def floor_of(dtype: DType) -> float:
    """The error that is never held against a result of this type."""
    roundoff = _roundoff_of(dtype)
    return (_FLOOR_HALF if roundoff > 1e-4 else _FLOOR_SINGLE) * roundoff


def _roundoff_of(dtype: DType) -> float:
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


def allowed(eager: Error, dtype: DType, *, precision: float = 0.0, summed: bool = False) -> Error:
    """The largest errors that pass.

    Args:
        eager: errors of the original program in the same precision.
        dtype: of the result.
        precision: unit roundoff of the arithmetic that was allowed on purpose, if lower than that of the type.
        summed: for gradients: each is a sum over all rows, whose terms cancel; its error is one of what was summed.
    """
    if eager.norm > _NOTHING:
        return Error(_NOISE_FACTOR * max(eager.largest, eager.norm), math.inf, math.inf, math.inf)
    more = _SUMMED if summed else 1.0
    floor = max(more * floor_of(dtype), precision)
    # What is left where terms cancel is as much less precise as the arithmetic is.
    roundoff = _roundoff_of(dtype)
    less_precise = max(1.0, precision / roundoff) if roundoff else 1.0
    small = max(_SMALL_FACTOR * less_precise * eager.small, _SMALL_FLOOR * floor)
    few = max(_FEW_FACTOR * less_precise * eager.few, _FEW_FACTOR / _SMALL_FACTOR * _SMALL_FLOOR * floor)
    factor = _FACTOR * (2.0 if summed else 1.0)
    return Error(max(factor * eager.largest, floor), max(factor * eager.norm, floor), small, few)


def allowed_noise(eager: Error, truth: Any, scale: float, dtype: DType) -> Error:
    """The largest errors that pass of a gradient that is noise: a few times what the original is off by, or what rounding
    takes from the gradients around it.

    Args:
        eager: of the original. truth: what they are relative to. scale: of the largest gradient of the same call.
    """
    largest = float(truth.detach().abs().max()) if truth.numel() else 0.0
    around = floor_of(dtype) * scale / largest if largest else math.inf
    most = max(_NOISE_FACTOR * max(eager.largest, eager.norm), around)
    return Error(most, math.inf, math.inf, math.inf)


def other_masks(found: Any, eager: Any, reference: Any) -> int:
    """Elements whose NaN or infinity is not the original's, where the original and the reference agree about it."""
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        return 0
    truth = reference.to(found.device)
    settled = (torch.isnan(eager) == torch.isnan(truth)) & (torch.isinf(eager) == torch.isinf(truth))
    differ = (torch.isnan(found) != torch.isnan(eager)) | (torch.isinf(found) != torch.isinf(eager))
    differ |= torch.isinf(found) & torch.isinf(eager) & (found != eager)
    return int((settled & differ).sum())
