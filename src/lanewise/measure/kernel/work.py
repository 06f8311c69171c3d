"""`Work`: what an operator has to compute and to move, and how formulas for it are registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lanewise.measure.signatures import Signature, Tensor

__all__ = ["Formula", "Formulas", "Work", "broadcast", "promoted"]


class Work(NamedTuple):
    """FLOPs and bytes of one call.

    Attributes:
        kind: matmul, convolution, attention, normalisation, softmax, pointwise, reduction, copy, embedding, optimizer.
        flops: a multiply-add counts 2, as torch's `FlopCounterMode` counts; None if unknown, which is never zero.
        read, written: bytes of distinct storage: what a single pass over every operand moves.
        dtype: torch's name of the type that it computes in; "" if unknown.
        masked: part of `flops` that is really executed: a causal mask halves attention, `FlopCounterMode` ignores it.
        rows: for a matrix product the number of rows (batch, tokens); 0 otherwise.
        exact: whether `read` and `written` are those of one pass; otherwise a lower bound.
    """

    kind: str
    flops: float | None
    read: int
    written: int
    dtype: str = ""
    masked: float = 1.0
    rows: int = 0
    exact: bool = True

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def executed(self) -> float | None:
        """FLOPs that the device has to do."""
        return None if self.flops is None else self.flops * self.masked


Formula = Callable[[Signature], Work | None]


class Formulas(dict[str, Formula]):
    """Formulas by operator name."""

    def of(self, *names: str) -> Callable[[Formula], Formula]:
        """Register the decorated function for operators."""

        def register(function: Formula) -> Formula:
            for name in names:
                self[name] = function
            return function

        return register


def broadcast(*tensors: Tensor) -> int:
    """Number of elements of the result of an element-wise operation; 0 if the shapes do not fit together."""
    rank = max((len(tensor.shape) for tensor in tensors), default=0)
    total = 1
    for dimension in range(1, rank + 1):
        sizes = {tensor.shape[-dimension] for tensor in tensors if len(tensor.shape) >= dimension}
        wide = sizes - {1}
        if len(wide) > 1:
            return 0
        total *= wide.pop() if wide else 1
    return total


_RANK = (
    "bool",
    "unsigned char",
    "signed char",
    "char",
    "short int",
    "short",
    "int",
    "long int",
    "long",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "at::Half",
    "c10::Half",
    "at::BFloat16",
    "c10::BFloat16",
    "float",
    "double",
)


def promoted(*tensors: Tensor) -> str:
    """Type of the result of an element-wise operation; tensors without dimensions do not widen it within a category."""
    wide = [tensor for tensor in tensors if tensor.shape] or list(tensors)
    types = [tensor.dtype for tensor in wide]
    if {"c10::Half", "c10::BFloat16"} <= set(types):
        return "float"
    return max(types, key=lambda dtype: _RANK.index(dtype) if dtype in _RANK else -1, default="")
