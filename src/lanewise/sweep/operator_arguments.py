"""Arguments like those that were recorded of an operator, at another batch size."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from lanewise.measure.signatures import Tensor
from lanewise.sweep.growth import Growth, Shape

__all__ = ["Arguments", "Given"]

_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "long": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
_PRODUCTS = {"mm": 0, "addmm": 1, "addmm_": 1}
"""Matrix products, and where their first factor stands."""


class Given(msgspec.Struct, frozen=True):
    """One argument: its tensors, `several` if it is a list of them; else its value as `text`, "" if that is not known."""

    tensors: list[Tensor]
    several: bool
    text: str


class _CannotTellError(Exception):
    """The arguments of a call cannot be made from what was recorded."""


class Arguments:
    """Finds operators, and makes what they are called with."""

    def __init__(self, torch: Any, device: str, growth: Sequence[Growth], recorded: Iterable[Given]) -> None:
        """growth: from the recorded batch size to each other one, that of the recording first. recorded: all arguments."""
        self._torch = torch
        self._device = device
        self._growth = growth
        self._buffers: dict[Any, Any] = {}
        types = Counter(one.dtype for each in recorded for one in each.tensors if one.dtype)
        self._usual = types.most_common(1)[0][0] if types else ""

    def forget(self) -> None:
        """Let the next tensors have memory of their own."""
        self._buffers.clear()

    def growing(self, operator: Any, recorded: list[Given]) -> list[int]:
        """Places of single tensors that grow with the batch: what does not is a parameter."""
        shapes = self._shapes(operator, recorded, self._growth[-1])
        return [
            place
            for place, given in enumerate(recorded)
            if given.tensors and not given.several and shapes[place][0] != given.tensors[0].shape
        ]

    def find(self, name: str, arguments: list[Given]) -> Any:
        """The overload that was called, if it has a kernel of its own."""
        space, _, word = name.partition("::")
        packet = getattr(getattr(self._torch.ops, space), word)
        has = self._torch._C._dispatch_has_kernel_for_dispatch_key
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            if not _fits(operator._schema.arguments, arguments) or has(operator.name(), "CompositeImplicitAutograd"):
                continue
            with suppress(Exception):
                args, named = self.make(operator, arguments, self._growth[0])
                operator(*args, **named)
                return operator
        return None

    def make(self, operator: Any, recorded: list[Given], growth: Growth) -> tuple[list[Any], dict[str, Any]]:
        """What to call an operator with at another batch size, by place and by name. Raises where that cannot be told."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        shapes = self._shapes(operator, recorded, growth)
        growing = self.growing(operator, recorded)
        for place, argument in enumerate(operator._schema.arguments):
            given = recorded[place]
            if given.tensors:
                both = zip(given.tensors, shapes[place], strict=True)
                constant = not given.several and place not in growing
                made = [self._tensor(one, shape, (place, at), constant) for at, (one, shape) in enumerate(both)]
                value = made if given.several else made[0]
            else:
                value = self._value(argument, given, growth)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        self._make_indices(operator, positional)
        return positional, named

    def _shapes(self, operator: Any, recorded: list[Given], growth: Growth) -> list[list[Shape]]:
        """Of the tensors of each argument, at another batch size."""
        products = _product_shapes(operator, recorded, growth)
        beside = [one.shape for other in recorded for one in other.tensors]
        return [
            [products.get(place) or growth.argument(argument.name, one.shape, beside) for one in given.tensors]
            for place, (argument, given) in enumerate(zip(operator._schema.arguments, recorded, strict=True))
        ]

    def _value(self, argument: Any, given: Given, growth: Growth) -> Any:
        if "Tensor" in str(argument.type):
            return None
        if argument.name == "device":
            # No text is recorded for it; without one, what makes a tensor would make it on the host.
            return self._device
        value = _parsed(given.text) if given.text else None
        if value is None:
            if argument.has_default_value():
                return argument.default_value
            raise _CannotTellError(argument.name)
        if isinstance(value, list):
            return growth.sizes(argument.name, value)
        # Types are recorded by number: the default, that of the other arguments, is what they mostly are.
        if argument.name == "dtype" and argument.has_default_value():
            return argument.default_value
        return value

    def _tensor(self, recorded: Tensor, shape: Shape, place: tuple[int, int], constant: bool) -> Any:
        torch = self._torch
        name = recorded.dtype or self._usual  # of the tensors of a list no type is recorded
        if name not in _DTYPES:
            raise _CannotTellError(name)
        dtype = getattr(torch, _DTYPES[name])
        strides = recorded.strides if recorded.strides and len(recorded.strides) == len(shape) else None
        order = sorted(range(len(shape)), key=lambda at: -strides[at]) if strides else list(range(len(shape)))
        stored = [1 if strides and strides[at] == 0 and shape[at] > 1 else shape[at] for at in order]
        gaps = _gaps(recorded.shape, strides, order) if strides else [1] * len(shape)
        key = (dtype, tuple(stored), tuple(gaps), place)
        if key not in self._buffers:
            # Calls of one step pass memory on: tensors of its own for each would be more than a cache holds.
            room = [size * gap for size, gap in zip(stored, [1, *gaps], strict=False)] + gaps[-1:]
            self._buffers[key] = self._filled(room, dtype, constant)
        made = self._buffers[key]
        if stored:
            made = made.select(-1, 0)
        for at, size in enumerate(stored):
            made = made.narrow(at, 0, size)
        return made.permute([order.index(at) for at in range(len(shape))]).expand(shape)

    def _filled(self, room: list[int], dtype: Any, constant: bool) -> Any:
        torch, device = self._torch, self._device
        if dtype == torch.bool:
            # Half of each, at random: what is all the same is guessed right by every branch of a processor.
            return torch.rand(room, device=device) < 0.5
        if not dtype.is_floating_point:
            return torch.zeros(room, dtype=dtype, device=device)
        if constant and len(room) > 2:
            # What a layer makes is about as large as what it gets, as in a network.
            return torch.randn(room, device=device).mul_(math.prod(room) ** -0.25).to(dtype)
        return torch.rand(room, device=device).add_(0.5).to(dtype)

    def _make_indices(self, operator: Any, args: list[Any]) -> None:
        """Indices that point to different rows: all of them at one would be quicker than any program's."""
        word = operator._schema.name.partition("::")[2]
        bounds = {
            "embedding": lambda: (1, args[0].shape[0]),
            "embedding_dense_backward": lambda: (1, int(args[2])),
            "nll_loss_forward": lambda: (1, args[0].shape[-1]),
            "nll_loss_backward": lambda: (2, args[1].shape[-1]),
        }
        if word in bounds:
            place, bound = bounds[word]()
            args[place] = self._torch.randint(0, max(1, bound), args[place].shape, device=self._device)


def _gaps(shape: Shape, strides: Shape, order: Sequence[int]) -> list[int]:
    """How many times as far as need be each dimension's items are from each other, in an order from outer to inner."""
    found: list[int] = []
    for at, inner in zip(order, [*order[1:], None], strict=True):
        dense = 1 if inner is None else strides[inner] * shape[inner]
        found.append(strides[at] // dense if dense and strides[at] % dense == 0 and strides[at] else 1)
    return found


def _fits(arguments: Any, recorded: list[Given]) -> bool:
    """Whether the schema of an overload takes what was recorded."""
    if len(arguments) != len(recorded):
        return False
    for argument, given in zip(arguments, recorded, strict=True):
        kind = str(argument.type)
        several = "List[Tensor]" in kind or "List[Optional[Tensor]]" in kind
        if not given.tensors:
            fits = kind != "Tensor"
        else:
            fits = "Tensor" in kind and several == given.several
        if not fits:
            return False
    return True


def _product_shapes(operator: Any, recorded: list[Given], growth: Growth) -> dict[int, tuple[int, ...]]:
    """Shapes that must fit each other, by argument: those of a matrix product."""
    at = _PRODUCTS.get(operator._schema.name.partition("::")[2])
    if at is None:
        return {}
    left, right = recorded[at].tensors[0], recorded[at + 1].tensors[0]
    transposed = left.strides is not None and left.strides[0] == 1 and left.strides[1] > 1
    grown = growth.product(left.shape, right.shape, left_is_transposed=transposed)
    added = recorded[0].tensors[0] if at else None
    shapes = dict(zip((at, at + 1), grown, strict=True))
    if added is not None:
        whole = (grown[0][0], grown[1][1])
        shapes[0] = added.shape if len(added.shape) < 2 or added.shape[0] == 1 else whole
    return shapes


def _parsed(text: str) -> Any:
    """The value that a recorded text spells; None for none."""
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return None
