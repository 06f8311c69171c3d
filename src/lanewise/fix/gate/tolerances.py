"""How far results are from the truth, and how far they may be.

A result passes if its error against the reference is at most twice that of the original program in the same precision, or
below a small floor; in the largest difference over the largest value, and in the relative L2 norm. NaN and infinities
must be where the original has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part

__all__ = ["Error", "allowed", "error_of", "floor_of", "other_masks", "rounded", "worst"]

torch: Any = torch_part()

_FACTOR = 2.0
# In units of the roundoff of the type: what reordering a few operations may cost where the original happens to be exact.
_FLOOR_SINGLE, _FLOOR_HALF = 8.0, 1.0


class Error(NamedTuple):
    """Relative errors against a reference: largest difference over largest value, and L2 norm over L2 norm."""

    largest: float
    norm: float

    def within(self, limit: Error) -> bool:
        """Whether neither is above its limit. NaN is not."""
        return self.largest <= limit.largest and self.norm <= limit.norm


def error_of(found: Any, reference: Any) -> Error:
    """Error of a tensor, over the elements that are finite in both; 0 where there are none."""
    if found.numel() == 0:
        return Error(0.0, 0.0)
    a, b = found.detach().to(torch.float64), reference.detach().to(found.device, torch.float64)
    finite = torch.isfinite(a) & torch.isfinite(b)
    difference = torch.where(finite, a - b, 0.0)
    truth = torch.where(finite, b, 0.0)
    scale, length = float(truth.abs().max()), float(truth.norm())
    largest, norm = float(difference.abs().max()), float(difference.norm())
    if scale == 0.0:
        # Where all of the truth is zero, an error has no scale: it is one, or none.
        return Error(0.0 if largest == 0.0 else math.inf, 0.0 if norm == 0.0 else math.inf)
    return Error(largest / scale, norm / length)


def rounded(found: Any, reference: Any) -> bool:
    """Whether a tensor is the reference, rounded to its type: no error that ever counts, and quickly found out."""
    return bool(torch.equal(found.detach(), reference.detach().to(found.device, found.dtype)))


def worst(errors: Iterable[Error]) -> Error:
    """The largest of each; zeros if there are none."""
    found = [Error(0.0, 0.0), *errors]
    return Error(max(error.largest for error in found), max(error.norm for error in found))


def floor_of(dtype: Any) -> float:
    """The error that is never held against a result of this type."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return 0.0
    roundoff = float(torch.finfo(dtype).eps)
    return (_FLOOR_HALF if roundoff > 1e-4 else _FLOOR_SINGLE) * roundoff


def allowed(eager: Error, dtype: Any, *, precision: float = 0.0) -> Error:
    """The largest errors that pass.

    Args:
        eager: errors of the original program in the same precision.
        dtype: of the result.
        precision: unit roundoff of the arithmetic that was allowed on purpose, if lower than that of the type.
    """
    floor = max(floor_of(dtype), precision)
    return Error(max(_FACTOR * eager.largest, floor), max(_FACTOR * eager.norm, floor))


def other_masks(found: Any, eager: Any, reference: Any) -> int:
    """Elements whose NaN or infinity is not the original's, where the original and the reference agree about it."""
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        return 0
    truth = reference.to(found.device)
    settled = (torch.isnan(eager) == torch.isnan(truth)) & (torch.isinf(eager) == torch.isinf(truth))
    differ = (torch.isnan(found) != torch.isnan(eager)) | (torch.isinf(found) != torch.isinf(eager))
    return int((settled & differ).sum())
