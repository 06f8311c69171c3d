"""What of a recorded call grows with the batch: shapes at another batch size, from the call's names and shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = ["Growth", "Shape"]

Shape = tuple[int, ...]

# Arguments that hold parameters or statistics of a module, by their name in the operator's schema.
_CONSTANT = {"weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd", "total_weight"}


@dataclass(frozen=True)
class Growth:
    """How shapes grow from one batch size to another.

    Attributes:
        batch: the batch size of the recording. to: the other one.
        parameters: shapes of the program's parameters, as far as the recording tells.
    """

    batch: int
    to: int
    parameters: Collection[Shape]

    def argument(self, name: str, shape: Shape, beside: Collection[Shape] = ()) -> Shape:
        """The shape of an argument of that name at the other batch size.

        One that is the last dimensions of another argument's shape (`beside`), whose batch comes before those, is the same
        for each item.
        """
        if name in _CONSTANT or any(self._for_each_item(shape, other) for other in beside):
            return shape
        return self.shape(shape)

    def shape(self, shape: Shape) -> Shape:
        """The shape at the other batch size: the dimension that is the batch, or a multiple of it, grows.

        A dimension that equals the batch counts for more than being shaped like a parameter, and the first for more than
        the others. Where the batch is 1 every size is a multiple of it: the first dimension grows, if nothing says more.
        """
        if not shape:
            return shape
        if shape[0] == self.batch:
            return self._at(shape, 0)
        if shape in self.parameters or shape[::-1] in self.parameters:
            return shape
        if self.batch > 1 and shape[0] and shape[0] % self.batch == 0:
            return self._at(shape, 0)
        if self.batch in shape:
            return self._at(shape, shape.index(self.batch))
        for place, size in enumerate(shape):
            if size and size % self.batch == 0:
                return self._at(shape, place)
        return shape

    def product(self, left: Shape, right: Shape, *, left_is_transposed: bool) -> tuple[Shape, Shape]:
        """Both factors of a matrix product: rows grow, or, in the gradient of a weight, what is summed over.

        What makes a product the gradient is that it is shaped like a weight: one row of activations may be, too.
        """
        (rows, inner), columns = left, right[1]
        if left_is_transposed and (self._is_parameter((rows, columns)) or not self._is_parameter(right)):
            inner = self._size(inner)
        elif self._is_parameter(left) and not self._is_parameter(right) and self._grows(columns):
            columns = self._size(columns)
        else:
            rows = self._size(rows)
        return (rows, inner), (inner, columns)

    def sizes(self, name: str, sizes: Sequence[int]) -> list[int]:
        """A list of integers of that name: one that is a shape grows like one."""
        return list(self.shape(tuple(sizes))) if "size" in name and "kernel" not in name else list(sizes)

    def _for_each_item(self, shape: Shape, other: Shape) -> bool:
        if not 0 < len(shape) < len(other) or other[-len(shape) :] != shape:
            return False
        grown = self.shape(other)
        return grown != other and grown[-len(shape) :] == shape

    def _is_parameter(self, shape: Shape) -> bool:
        return shape in self.parameters or shape[::-1] in self.parameters

    def _grows(self, size: int) -> bool:
        return size % self.batch == 0

    def _size(self, size: int) -> int:
        return size // self.batch * self.to if self._grows(size) else size

    def _at(self, shape: Shape, place: int) -> Shape:
        return (*shape[:place], self._size(shape[place]), *shape[place + 1 :])
