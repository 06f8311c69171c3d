"""What is known of a value, and what follows for one that is one of several, a part, or the result of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst

__all__ = [
    "NUMBER", "OPPOSITE", "PENDING", "UNKNOWN", "Pairs", "Value", "What", "broadcast", "item_of", "joined",
    "operated",
]  # fmt: skip

What = Literal[
    "", "pending", "tensor", "number", "text", "none", "sizes", "list", "module", "optimizer", "dtype", "object"
]


@dataclass(frozen=True)
class Value:
    """What is known of a value.

    Attributes:
        what: its kind; "" if unknown. rank: of a tensor, None if unknown. dtype: of a tensor: "float" for a type with a
            fraction, "bool", "int", "" if unknown. host: whether a tensor was made on the host.
        item: what a list holds. kind: full name of a module's or an optimizer's class; "" for one of this file.
        made: the call that made a module or an optimizer. own: its class, if that is written in this file.
        mask: "shows" for ones in a triangle that has the whole first column, "hides" for its opposite.
    """

    what: What = ""
    rank: int | None = None
    dtype: str = ""
    host: bool = False
    item: Value | None = None
    kind: str = ""
    made: cst.Call | None = None
    own: cst.ClassDef | None = None
    mask: Literal["", "hides", "shows"] = ""

    @property
    def tensor(self) -> bool:
        """Whether it is proven to be a tensor."""
        return self.what == "tensor"

    @property
    def known(self) -> bool:
        """Whether anything is proven."""
        return self.what not in ("", "pending")


UNKNOWN = Value()
NUMBER = Value("number")
PENDING = Value("pending")
"""Asked for while it is being found out: what else is known decides."""
OPPOSITE: dict[str, Literal["", "hides", "shows"]] = {"": "", "hides": "shows", "shows": "hides"}
"""What an inverted mask does."""


class Pairs(Value):
    """What a loop over pairs gives, part by part."""

    def __init__(self, items: Sequence[Value]) -> None:
        super().__init__("list")
        object.__setattr__(self, "own_items", list(items))

    own_items: list[Value]


def item_of(value: Value) -> Value:
    """One of what a value holds."""
    if value.what == "list":
        return value.item or UNKNOWN
    if value.what == "sizes":
        return NUMBER
    if value.tensor:
        return replace(value, rank=None if value.rank is None else value.rank - 1, host=False)
    return value if value.what == "pending" else UNKNOWN


def joined(values: Iterable[Value]) -> Value:
    """What is known of a value that is one of these."""
    found = [one for one in values if one.what != "pending"]
    if not found:
        return PENDING
    first = found[0]
    for one in found[1:]:
        if one.what != first.what:
            return UNKNOWN
        first = replace(
            first,
            rank=first.rank if one.rank == first.rank else None,
            dtype=first.dtype if one.dtype == first.dtype else "",
            host=first.host and one.host,
            item=None if first.item is None or one.item is None else joined([first.item, one.item]),
            kind=first.kind if one.kind == first.kind else "",
            made=first.made if one.made is first.made else None,
            own=first.own if one.own is first.own else None,
            mask=first.mask if one.mask == first.mask else "",
        )
        if first.what in ("module", "optimizer") and not first.kind and first.own is None:
            return UNKNOWN
    return first


def broadcast(values: Sequence[Value]) -> Value:
    """The tensor that operands are broadcast to."""
    tensors = [one for one in values if one.tensor]
    if any(one.what == "" for one in values):
        return Value("tensor")
    ranks = [one.rank for one in tensors]
    known = [rank for rank in ranks if rank is not None]
    types = {one.dtype for one in tensors}
    dtype = "float" if "float" in types and "" not in types else types.pop() if len(types) == 1 else ""
    return Value("tensor", max(known) if len(known) == len(ranks) and known else None, dtype)


def operated(left: Value, right: Value, product: bool) -> Value:
    """The result of an operator: of a tensor and anything else a tensor."""
    if left.tensor or right.tensor:
        result = broadcast([one for one in (left, right) if one.what != "pending"])
        return replace(result, rank=None) if product and result.rank is not None and result.rank < 2 else result
    if left.what == right.what == "number":
        return NUMBER
    if "pending" in (left.what, right.what):
        other = right if left.what == "pending" else left
        return PENDING if other.what in ("number", "pending") else UNKNOWN
    return UNKNOWN
