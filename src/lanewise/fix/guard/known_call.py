"""Whether a call is of one known kind and all is as it was, asked in one pass, without making a key of the call first.

Most calls are of the kind of the call before. What tells them is written out as one function per kind, with nothing in it
but comparisons: tensors are compared (class, type, device, shape, strides, `requires_grad`, transforms, inference mode) by
torch in C++, as for its compiler; where a version of torch does not do that, the key of every call is made. The state of
the process and what the fast path stands on follow in the same function: each further one would take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import ALIGNED
from lanewise.fix.guard.code_reads import HEAP_TYPE
from lanewise.fix.guard.memory import Still
from lanewise.fix.guard.process_state import how_many_modes
from lanewise.fix.typed_torch import torch

_dispatch: Any = torch_part("torch.utils._python_dispatch")

__all__ = ["Fits", "KnownCall", "known_call"]

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_BY_IDENTITY = (bool, type(None), type(...), torch.dtype, torch.layout, torch.memory_format)
_BY_VALUE = (int, float, str, bytes, torch.device)
_WHOLE = (torch.nn.Module, torch.optim.Optimizer)
_MOST = 500
"""Tensors and other values of a call that are written out."""

Fits = Callable[[tuple[Any, ...], dict[str, Any]], bool]
"""Of a call: whether it is known."""


class KnownCall(Protocol):
    """A kind of calls: what tells them, as long as the process and all that a fast path stands on are as given."""

    def __call__(self, alike: Callable[[], bool], modes: int, still: Still) -> Fits: ...


def known_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> KnownCall | None:
    """What tells whether later calls are of the kind of this one, with grad mode and autocast as they are now.

    It says no where it cannot tell. None for a call that is not made of tensors in memory, plain values, and lists, tuples,
    dictionaries and plain objects of these.
    """
    if not _compares():
        return None
    written = _Written()
    try:
        written.each("args", args)
        written.named("kwargs", kwargs)
        return written.function()
    except Exception:  # sparse, without memory, or of a kind that is not compared
        return None


class _Watching(_dispatch.TorchDispatchMode):
    """Looks at every operator."""


class _Written:
    """The source of the function, and what it names."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {}
        self._tensors: dict[str, Any] = {}
        self._count = 0

    def each(self, name: str, values: Any, kind: str = "") -> None:
        """Of a list or tuple; `kind` is the name of its type, where it may be another."""
        other = f"type({name}) is not {kind} or " if kind else ""
        self._unless(f"{other}len({name}) != {len(values)}")
        parts = [self._new() for _ in values]
        if parts:
            self._lines.append(f"{', '.join(parts)}, = {name}")
        self._all(parts, values)

    def named(self, name: str, values: dict[str, Any]) -> None:
        """Of a dictionary, in its order."""
        if any(type(key) is not str for key in values):
            raise TypeError
        parts, names = [self._new() for _ in values], [self._new() for _ in values]
        self._unless(f"len({name}) != {len(values)}" if values else name)
        if values:
            self._lines.append(f"{', '.join(names)}, = {name}")
            self._unless(" or ".join(f"{one} != {key!r}" for one, key in zip(names, values, strict=True)))
        self._lines += [f"{part} = {name}[{key!r}]" for part, key in zip(parts, values, strict=True)]
        self._all(parts, values.values())

    def function(self) -> KnownCall | None:
        tensors = list(self._tensors.values())
        if not tensors or not (same := _comparison(tensors))(*tensors):  # the same tensor twice
            return None
        self._names |= {"same": same, "how_many_modes": how_many_modes}
        aligned = [name for name, one in self._tensors.items() if not one.data_ptr() & ALIGNED]
        asked = [f"same({', '.join(self._tensors)})"]
        asked += [f"{name}.data_ptr() & {ALIGNED}" for name in self._tensors if name not in aligned]
        if aligned:
            asked.append(f"not ({' | '.join(f'{name}.data_ptr()' for name in aligned)}) & {ALIGNED}")
        asked += ["alike()", "how_many_modes() == modes"]
        # As `Still.holds`; another call would take longer.
        asked += ["(words[at].tobytes() if few is None else few(words)) == seen", "(rest is None or rest())"]
        known = [f"    {line}" for line in [*self._lines, f"return {' and '.join(asked)}"]]
        lines = ["words, few, at, seen, rest, _ = still", "def known(args, kwargs):", *known, "return known"]
        exec("\n    ".join(["def of_kind(alike, modes, still):", *lines]), self._names)
        return self._names["of_kind"]

    def _all(self, names: Sequence[str], values: Iterable[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            self._value(name, value)

    def _value(self, name: str, value: Any) -> None:
        kind = type(value)
        if kind in _TENSORS:
            self._tensors[name] = value
        elif kind in _BY_IDENTITY or isinstance(value, Enum):
            self._unless(f"{name} is not {self._named(value)}")
        elif kind in _BY_VALUE and value == value:
            self._unless(f"type({name}) is not {self._named(kind)} or {name} != {self._named(value)}")
            if kind is float and value == 0.0:
                self._unless(f"{self._named(math.copysign)}(1.0, {name}) != {math.copysign(1.0, value)}")
        elif kind is list or kind is tuple:
            self.each(name, value, kind.__name__)
        elif kind is dict:
            self._unless(f"type({name}) is not dict")
            self.named(name, value)
        elif _is_data(kind):
            self._unless(f"type({name}) is not {self._named(kind)}")
            held = self._new()
            self._lines.append(f"{held} = {name}.__dict__")
            self.named(held, vars(value))
        else:
            raise TypeError

    def _unless(self, differs: str) -> None:
        self._lines.append(f"if {differs}: return False")

    def _named(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _new(self) -> str:
        self._count += 1
        if self._count > _MOST:
            raise TypeError
        return f"v{self._count}"


def _is_data(kind: type) -> bool:
    """Whether all that its objects hold is in their dictionary: classes of Python without slots, and nothing of C's."""
    bases = [base for base in kind.__mro__ if base not in (object, SimpleNamespace)]
    written = all(base.__flags__ & HEAP_TYPE and not vars(base).get("__slots__") for base in bases)
    called = any("__call__" in vars(base) for base in bases)
    return written and kind.__dictoffset__ != 0 and not called and not issubclass(kind, _WHOLE)


def _comparison(tensors: list[Any]) -> Callable[..., bool]:
    """Of as many tensors with what is known of these, which are not kept."""
    sizes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
    kind = torch_part("torch._C")._dynamo.guards.TensorGuards
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


@cache
def _compares() -> bool:
    """Whether it tells apart all that it has to."""
    known = torch.empty(2, 3)
    others = [
        known.t(), torch.empty(3, 2), torch.empty(2, 3, 1), known.double(), torch.empty(2, 3, requires_grad=True),
        torch.nn.Parameter(known), torch.empty(2, 3, device="meta"), torch.empty_strided((2, 3), (1, 2)), 3, None,
    ]  # fmt: skip
    inference = torch.is_inference_mode_enabled()
    try:
        one, two = _comparison([known]), _comparison([known, known])
        with torch.inference_mode(inference):
            again = torch.empty(2, 3)
        if not (one(known) and one(again) and two(known, again)) or two(known, known) or any(map(one, others)):
            return False
        with torch.inference_mode(not inference):
            elsewhere = [one(known)]

        def batched(x: Any) -> Any:
            elsewhere.append(one(known))
            return x

        torch.func.vmap(batched)(known)
        with _Watching():
            elsewhere.append(one(known))
        return elsewhere == [False, False, False]
    except Exception:
        return False
