"""Takes the calls of one known kind while all is as it was, asked in one pass, without making a key of the call first.

Most calls are of the kind of the call before. What tells them is written out as one function per kind, with nothing in it
but comparisons: tensors are compared (class, type, device, shape, strides, `requires_grad`, transforms, inference mode) by
torch in C++, as for its compiler; where a version of torch does not do that, the key of every call is made. The state of
the process, what the fast path stands on and the call of it follow in the same function: each further one, and
each dictionary made for it, would take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cache
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import ALIGNED
from lanewise.fix.guard.code_reads import HEAP_TYPE
from lanewise.fix.guard.still import Still
from lanewise.fix.guard.written import NO, Questions, function
from lanewise.fix.typed_torch import torch

_dispatch: Any = torch_part("torch.utils._python_dispatch")

__all__ = ["KnownCall", "comparison", "known_call"]

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_BY_IDENTITY = (bool, type(None), type(...), torch.dtype, torch.layout, torch.memory_format)
_BY_VALUE = (int, float, str, bytes, torch.device)
_WHOLE = (torch.nn.Module, torch.optim.Optimizer)
_MOST = 500
"""Tensors and other values of a call that are written out."""


class KnownCall(NamedTuple):
    """A kind of calls: what asks about a call whether it is of it, and the lines that call the fast path with it."""

    questions: Questions
    call: Sequence[str]

    def fits(self, process: Questions) -> Callable[[Any, Any], Any]:
        """What says True of the arguments of a call of this kind, with the state of the process as given."""
        return function("args, kwargs", [self.questions, process], ["return True"])

    def take(self, process: Questions, key: Any, still: Still) -> Callable[[Any, Any, Any], Any]:
        """What makes of a dispatch and the arguments of such a call what the fast path does, while nothing has changed."""
        return function("self, args, kwargs", [self.questions, process, still.questions], self.call, key=key)

    def take_first(self, process: Questions, key: Any, still: Still, in_compiler: Any) -> Callable[..., Any]:
        """The same as the `__call__` of a dispatch, whose `otherwise` takes all other calls."""
        called = Questions(["if in_compiler(): return self.run(args, kwargs)"], {"in_compiler": in_compiler})
        asked = [self.questions, process, still.questions]
        asked = [Questions([line.replace(NO, _OTHERWISE) for line in one.lines], one.names) for one in asked]
        return function("self, *args, **kwargs", [called, *asked], self.call, key=key)


_OTHERWISE = "return self.otherwise(args, kwargs)"


def known_call(args: tuple[Any, ...], kwargs: dict[str, Any], by_kind: bool) -> KnownCall | None:
    """What takes later calls of the kind of this one, with grad mode and autocast as they are now, and only those.

    None for a call that is not made of tensors in memory, plain values, and lists, tuples, dictionaries and plain objects
    of these.

    Args:
        by_kind: whether the fast path is told the key of the kind.
    """
    if not _compares():
        return None
    written = _Written()
    try:
        given = [*written.each("args", args), *written.named("kwargs", kwargs)]
        called = "by_kind(key, args, kwargs)" if by_kind else f"fast({_as_given(given, kwargs)})"
        # An attribute of the object is read faster than called as a method.
        read = "by_kind = self.by_kind" if by_kind else "fast = self.fast"
        questions = written.questions()
        return questions and KnownCall(questions, ["self.hits += 1", read, f"return {called}"])
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

    def each(self, name: str, values: Any, kind: str = "") -> list[str]:
        """Of a list or tuple, and the names of what is in it; `kind` is the name of its type, where it may be another."""
        other = f"type({name}) is not {kind} or " if kind else ""
        self._unless(f"{other}len({name}) != {len(values)}" if values or other else name)
        parts = [self._new() for _ in values]
        if parts:
            self._lines.append(f"{', '.join(parts)}, = {name}")
        self._all(parts, values)
        return parts

    def named(self, name: str, values: dict[str, Any]) -> list[str]:
        """Of a dictionary, in its order, and the names of what is in it."""
        if any(type(key) is not str for key in values):
            raise TypeError
        parts, names = [self._new() for _ in values], [self._new() for _ in values]
        self._unless(f"len({name}) != {len(values)}" if values else name)
        if values:
            self._lines.append(f"{', '.join(names)}, = {name}")
            self._unless(" or ".join(f"{one} != {key!r}" for one, key in zip(names, values, strict=True)))
        self._lines += [f"{part} = {name}[{key!r}]" for part, key in zip(parts, values, strict=True)]
        self._all(parts, values.values())
        return parts

    def questions(self) -> Questions | None:
        tensors = list(self._tensors.values())
        if not tensors or not (same := comparison(tensors))(*tensors):  # the same tensor twice
            return None
        self._names |= {"same": same, "place": torch.Tensor.data_ptr}
        self._unless(f"not same({', '.join(self._tensors)})")
        aligned = {True: "", False: " == 0"}
        places = [f"place({name}) % {ALIGNED + 1}{aligned[_is_aligned(one)]}" for name, one in self._tensors.items()]
        self._unless(" or ".join(places))
        return Questions(self._lines, self._names)

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
        self._lines.append(f"if {differs}: {NO}")

    def _named(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _new(self) -> str:
        self._count += 1
        if self._count > _MOST:
            raise TypeError
        return f"v{self._count}"


def _as_given(values: Sequence[str], kwargs: dict[str, Any]) -> str:
    """The arguments, with values by these names: no tuple and no dictionary is made for them."""
    if not all(name.isidentifier() and not iskeyword(name) for name in kwargs):
        return "*args, **kwargs"
    by_place = len(values) - len(kwargs)
    by_name = [f"{name}={value}" for name, value in zip(kwargs, values[by_place:], strict=True)]
    return ", ".join([*values[:by_place], *by_name])


def _is_aligned(tensor: Any) -> bool:
    return not tensor.data_ptr() & ALIGNED


def _is_data(kind: type) -> bool:
    """Whether all that its objects hold is in their dictionary: classes of Python without slots, and nothing of C's."""
    bases = [base for base in kind.__mro__ if base not in (object, SimpleNamespace)]
    written = all(base.__flags__ & HEAP_TYPE and not vars(base).get("__slots__") for base in bases)
    called = any("__call__" in vars(base) for base in bases)
    return written and kind.__dictoffset__ != 0 and not called and not issubclass(kind, _WHOLE)


def comparison(tensors: list[Any]) -> Callable[..., bool]:
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
        one, two = comparison([known]), comparison([known, known])
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
