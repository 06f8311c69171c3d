"""What operators were called with: shapes, types, strides and concrete values, each distinct text parsed once."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lanewise.measure.group_keys import combined
from lanewise.trace.model import Trace

__all__ = ["DTYPE_BYTES", "Argument", "Signature", "Signatures", "Tensor", "whole_of"]

_WHOLE = re.compile(r"-?[0-9]{1,18}")

# No tensor has more elements: recorded text that says so is not a shape.
_MOST_ELEMENTS = 2**50

# Type names as torch records them -> bytes per element.
DTYPE_BYTES: dict[str, int] = {
    "float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "at::Half": 2, "at::BFloat16": 2,
    "long int": 8, "long": 8, "long long": 8, "int": 4, "short": 2, "short int": 2, "signed char": 1,
    "unsigned char": 1, "char": 1, "bool": 1, "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1, "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::complex<c10::Half>": 4,
}  # fmt: skip


def whole_of(text: str) -> int | None:
    """The integer that a recorded value spells; None for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


class Tensor(NamedTuple):
    """One tensor argument. `strides` is None where the trace does not record them."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        total = 1
        for size in self.shape:
            total *= size
        return total

    @property
    def itemsize(self) -> int:
        """Bytes per element; 0 for an unknown type."""
        return DTYPE_BYTES.get(self.dtype, 0)

    @property
    def bytes(self) -> int:
        """Bytes of distinct storage: dimensions that a broadcast repeats (stride 0) count once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel * self.itemsize
        total = self.itemsize
        for size, stride in zip(self.shape, self.strides, strict=True):
            if stride != 0 or size == 0:
                total *= size
        return total


Argument = Tensor | tuple[Tensor, ...] | None


class Signature(NamedTuple):
    """Arguments of one call.

    Attributes:
        inputs: per argument a tensor, a tuple of tensors, or None for anything else.
        concrete: per argument the value as text, "" where it is a tensor or was not recorded.
    """

    inputs: tuple[Argument, ...]
    concrete: tuple[str, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in order, lists flattened."""
        flat: list[Tensor] = []
        for value in self.inputs:
            if isinstance(value, Tensor):
                flat.append(value)
            elif value is not None:
                flat.extend(value)
        return tuple(flat)

    def tensor(self, position: int) -> Tensor | None:
        """The tensor at a position, or None."""
        value = self.inputs[position] if position < len(self.inputs) else None
        return value if isinstance(value, Tensor) else None

    def value(self, position: int) -> str:
        """The concrete value at a position as text, "" if unknown."""
        return self.concrete[position] if position < len(self.concrete) else ""

    def whole(self, position: int, default: int) -> int:
        """The concrete integer at a position."""
        value = whole_of(self.value(position))
        return default if value is None else value

    def whole_list(self, position: int) -> tuple[int, ...] | None:
        """The concrete list of integers at a position, or None."""
        text = self.value(position)
        if not (text.startswith("[") and text.endswith("]")):
            return None
        values = [whole_of(part.strip()) for part in text[1:-1].split(",")]
        whole = tuple(value for value in values if value is not None)
        return whole if len(whole) == len(values) else None


class Signatures:
    """Signatures of the operators of a trace, parsed on demand."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._parsed: dict[int, Any] = {}
        self._made: dict[tuple[int, int, int, int], Signature | None] = {}

    def of(self, event: int) -> Signature | None:
        """Arguments of one operator; None where the trace has no shapes for it."""
        row = int(self._trace.lookup("operator_args", np.array([event]))[0]) if event >= 0 else -1
        return self.of_row(row)

    def of_row(self, row: int) -> Signature | None:
        """Arguments in one row of `operator_args`; None for -1."""
        if row < 0:
            return None
        args = self._trace["operator_args"]
        key = (
            int(args["dims_text"][row]),
            int(args["types_text"][row]),
            int(args["strides_text"][row]),
            int(args["concrete_text"][row]),
        )
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def groups(self, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Group operators that have the same name and arguments.

        Returns:
            One example event per group, and the group of each event; an operator without recorded arguments forms a
            group with those of its name.
        """
        trace = self._trace
        args = trace["operator_args"]
        rows = trace.lookup("operator_args", events)
        columns: list[np.ndarray] = [trace.name[events]]
        if len(args["event"]):
            texts = ("dims_text", "types_text", "strides_text", "concrete_text")
            columns += [np.where(rows >= 0, args[name][np.maximum(rows, 0)].astype(np.int64) + 1, 0) for name in texts]
        key = combined(*columns)
        _, example, group = np.unique(key, return_index=True, return_inverse=True)
        return events[example], group.reshape(-1)

    def _text(self, text: int) -> Any:
        if text not in self._parsed:
            raw = self._trace.texts[text]
            try:
                self._parsed[text] = msgspec.json.decode(raw) if raw else None
            except (msgspec.DecodeError, RecursionError):
                self._parsed[text] = None
        return self._parsed[text]

    def _make(self, dims: int, types: int, strides: int, concrete: int) -> Signature | None:
        shapes, kinds = self._text(dims), self._text(types)
        if not isinstance(shapes, list):
            return None
        names = kinds if isinstance(kinds, list) and len(kinds) == len(shapes) else [""] * len(shapes)
        steps = self._text(strides)
        steps = steps if isinstance(steps, list) and len(steps) == len(shapes) else [None] * len(shapes)
        values = self._text(concrete)
        values = values if isinstance(values, list) and len(values) == len(shapes) else [""] * len(shapes)
        inputs = tuple(_argument(*argument) for argument in zip(shapes, names, steps, strict=True))
        return Signature(_typed_lists(inputs), tuple(v if isinstance(v, str) else "" for v in values))


def _argument(shape: Any, type_: Any, strides: Any) -> Argument:
    if not isinstance(shape, list):
        return None
    if shape and all(isinstance(part, list) for part in shape):
        steps = strides if isinstance(strides, list) and len(strides) == len(shape) else [None] * len(shape)
        tensors = (_tensor(part, "", step) for part, step in zip(shape, steps, strict=True))
        return tuple(t for t in tensors if t is not None)
    if isinstance(type_, str) and type_ in DTYPE_BYTES:
        return _tensor(shape, type_, strides)
    # Without types a non-empty list of sizes can only be a tensor; an empty one may be anything.
    return _tensor(shape, "", strides) if shape and type_ == "" else None


def _tensor(shape: Any, dtype: str, strides: Any) -> Tensor | None:
    if not all(isinstance(size, int) and 0 <= size <= _MOST_ELEMENTS for size in shape):
        return None
    if math.prod(shape) > _MOST_ELEMENTS:
        return None
    steps = tuple(strides) if isinstance(strides, list) and all(isinstance(s, int) for s in strides) else None
    return Tensor(tuple(shape), dtype, steps)


def _typed_lists(inputs: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Give the tensors of a list, whose type torch does not record, the one type that the other tensors have."""
    known = {value.dtype for value in inputs if isinstance(value, Tensor) and value.dtype}
    floating = {dtype for dtype in known if dtype in {"float", "double", "c10::Half", "c10::BFloat16"}}
    only = next(iter(floating or known)) if len(floating or known) == 1 else ""
    if not only:
        return inputs
    result: list[Argument] = []
    for value in inputs:
        if value is None or isinstance(value, Tensor):
            result.append(value)
        else:
            result.append(tuple(Tensor(tensor.shape, only, tensor.strides) for tensor in value))
    return tuple(result)
