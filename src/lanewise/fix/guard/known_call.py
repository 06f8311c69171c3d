"""Takes the calls of one known kind while all is as it was, asked in one pass, without making a key of the call first.

Most calls are of the kind of the call before. What tells them is written out as one function per kind, with nothing in it
but comparisons: tensors are compared (class, type, device, shape, strides, `requires_grad`, transforms, inference mode) by
torch in C++, as for its compiler; where a version of torch does not do that, the key of every call is made. The state of
the process, what the fast path stands on and the call of it follow in the same function: each further one, and
each dictionary made for it, would take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from ctypes import c_char, c_uint64
from enum import Enum
from functools import cache
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import ALIGNED
from lanewise.fix.guard.code_reads import HEAP_TYPE
from lanewise.fix.guard.memory import POINTER_AT, TYPE_AT, WORD, lies_as_known
from lanewise.fix.guard.same_tensors import can_be_told, looked_at_by, same_tensors
from lanewise.fix.guard.still import Still
from lanewise.fix.guard.written import NO, OTHER, Questions, function
from lanewise.fix.typed_torch import torch

_dispatch: Any = torch_part("torch.utils._python_dispatch")

__all__ = ["Among", "KnownCall", "comparison", "known_call"]

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_BY_IDENTITY = (bool, type(None), type(...), torch.dtype, torch.layout, torch.memory_format)
_BY_VALUE = (int, float, str, bytes, torch.device)
_WHOLE = (torch.nn.Module, torch.optim.Optimizer)
_MOST = 500
"""Tensors and other values of a call that are written out."""
_MANY, _MANY_ALONE = 3, 5
"""Tensors that are the same in every call, from which on it is faster to find that out than what they are: where much of
memory is read anyway, and where it is not."""


class _Line(NamedTuple):
    """A question, and the name of the list of nothing but tensors that it is about."""

    text: str
    about: str


class Parts(NamedTuple):
    """Of a call.

    Attributes:
        lines: questions about all but its tensors, those about a list of tensors only in one piece. names: what is named in
            these. tensors: names of the tensors. lists: by name, the names of what is in lists of nothing but tensors.
    """

    lines: Sequence[_Line]
    names: dict[str, Any]
    tensors: Sequence[str]
    lists: dict[str, Sequence[str]]

    def questions(self, but: Collection[str] = ()) -> Questions:
        """All of them, but those about some lists."""
        return Questions([line.text for line in self.lines if line.about not in but], self.names)


class KnownCall:
    """A kind of calls: what asks about a call whether it is of it, and the lines that call the fast path with it.

    Args:
        parts: of a call. tensors: some of the kind, which are not kept. call: lines.
    """

    def __init__(self, parts: Parts, tensors: Sequence[Any], call: Sequence[str]) -> None:
        self._parts, self._call = parts, call
        given = f"return [{', '.join(parts.tensors)}], [{', '.join(parts.lists)}]"
        self._given = function("args, kwargs", [parts.questions()], [given])
        self._questions = _join(parts.questions(), _compared(parts.tensors, tensors))

    def fits(self, process: Questions) -> Callable[[Any, Any], Any]:
        """What says True of the arguments of a call of this kind, with the state of the process as given."""
        return function("args, kwargs", [self._questions, process], ["return True"])

    def take(self, process: Questions, key: Any, still: Still) -> Callable[[Any, Any, Any], Any]:
        """What makes of a dispatch and the arguments of such a call what the fast path does, while nothing has changed."""
        asked = [self._questions, process, still.questions]
        return function("self, args, kwargs", asked, [_COUNT, *self._call], key=key)

    def take_first(
        self, process: Questions, key: Any, still: Still, in_compiler: Any, look: int | None
    ) -> Callable[..., Any]:
        """The same as the `__call__` of a dispatch, whose `otherwise` takes all other calls.

        Args:
            look: after how many calls the dispatch is to `look_for_the_same` tensors; None if it is not worth it.
        """
        count = [_COUNT] if look is None else [_COUNTED, f"if hits >= {look}: self.look_for_the_same(args, kwargs)"]
        return self._as_method([self._questions, process, still.questions], _OTHERWISE, count, in_compiler, key)

    def take_same(
        self, process: Questions, key: Any, still: Still, in_compiler: Any, among: Among
    ) -> Callable[..., Any]:
        """The same for calls with the same tensors among theirs; all that differs is for `others` of the dispatch."""
        asked = [
            self._parts.questions(among.lists),
            among.numbers,
            process,
            still.beside(among.same.words.places, among.same.words.seen),
            among.bodies,
        ]
        return self._as_method(asked, _OTHERS, [_COUNT], in_compiler, key)

    def _as_method(
        self, asked: Sequence[Questions], other: str, count: Sequence[str], in_compiler: Any, key: Any
    ) -> Callable[..., Any]:
        asked = [Questions([line.replace(NO, other) for line in one.lines], one.names) for one in asked]
        called = Questions(["if in_compiler(): return self.run(args, kwargs)"], {"in_compiler": in_compiler})
        return function("self, *args, **kwargs", [called, *asked], [*count, *self._call], key=key)

    def may_be_same(self, still: Still) -> bool:
        """Whether there are so many tensors that it is worth finding out which are the same in every call."""
        return len(self._parts.tensors) >= (_MANY if still.reads_many() else _MANY_ALONE)

    def among(self, args: Any, kwargs: Any, before: Among | None) -> Among | None:
        """Those of a call of this kind that are to be the same in the next one: all that can, or that were before, too."""
        given = self._given(args, kwargs)
        if given is OTHER:
            return None
        tensors, lists = given
        before_too = range(len(tensors)) if before is None else before.still(tensors)
        at = [one for one in can_be_told(tensors) if one in before_too]
        return Among(self._parts, tensors, lists, at) if len(at) >= _MANY else None


class Among:
    """Tensors of a call that are to be the same in the next one, and how to find out that they are, and what others are.

    Attributes:
        lists: names of those that hold nothing else: they are the same, too. same: the tensors. numbers: questions, to be
            asked first. bodies: to be asked where the words of the same tensors are as they were.

    Args:
        parts, tensors, lists: of the call. at: numbers of those tensors.
    """

    def __init__(self, parts: Parts, tensors: Sequence[Any], lists: Sequence[Any], at: Sequence[int]) -> None:
        self._at = at
        self.same = same_tensors([tensors[one] for one in at])
        places = dict(zip(parts.tensors, parts.tensors, strict=True))
        inside = {parts.tensors[one] for one in at}
        self.lists = [name for name, names in parts.lists.items() if lies_as_known() and inside.issuperset(names)]
        differ, bound = list[str](), dict[str, Any](id=id)
        for name, held in zip(parts.lists, lists, strict=True):
            if name in self.lists:
                differ.append(
                    f"id({name}) != id_{name} or head_{name}.raw != was_{name} or items_{name}.raw != were_{name}"
                )
                bound |= {f"{what}_{name}": value for what, value in _of_list(held).items()}
                inside.difference_update(parts.lists[name])
                places |= {one: f"{name}[{number}]" for number, one in enumerate(parts.lists[name])}
        numbers = {parts.tensors[one]: number for one, number in zip(at, self.same.numbers, strict=True)}
        differ += [f"id({name}) != id_{name}" for name in numbers if name in inside]
        bound |= {f"id_{name}": number for name, number in numbers.items()}
        others = [one for one in range(len(tensors)) if one not in at]
        differ += [f"id({parts.tensors[one]}) in numbers" for one in others]
        bound |= {"numbers": frozenset(self.same.numbers)}
        # What else looks at tensors in this thread, torch says of any that is looked at by the same parts of it.
        looked = looked_at_by(tensors[at[0]])
        known = [] if any(looked_at_by(tensors[one]) == looked for one in others) else [at[0]]
        asked = [*others, *known]
        compared = _compared(
            [places[parts.tensors[one]] for one in asked], [tensors[one] for one in asked], len(others)
        )
        self.numbers = _join(Questions([f"if {' or '.join(differ)}: {NO}"], bound), compared)
        bodies = {"join": b"".join, "bodies": self.same.bodies, "seen_bodies": self.same.seen}
        self.bodies = Questions([f"if join(bodies) != seen_bodies: {NO}"], bodies)

    def still(self, tensors: Sequence[Any]) -> list[int]:
        """Numbers of those that are the same ones."""
        return [self._at[one] for one in self.same.which([tensors[at] for at in self._at])]


def _of_list(held: list[Any]) -> dict[str, Any]:
    """What is compared of a list: its number; its class, length and where its values lie; and what these are."""
    at = id(held)
    head = (c_char * (POINTER_AT + WORD - TYPE_AT)).from_address(at + TYPE_AT)
    items = (c_char * (WORD * len(held))).from_address(c_uint64.from_address(at + POINTER_AT).value)
    return {"id": at, "head": head, "was": head.raw, "items": items, "were": items.raw}


def _compared(names: Sequence[str], tensors: Sequence[Any], count: int | None = None) -> Questions:
    """Whether tensors of these names are of the kind of these; of more than `count` it is known where they lie."""
    lines = [f"if not same({', '.join(names)}): {NO}"]
    aligned = {True: "", False: " == 0"}
    pairs = [*zip(names, tensors, strict=True)][:count]
    places = [f"place({name}) % {ALIGNED + 1}{aligned[_is_aligned(one)]}" for name, one in pairs]
    lines += [f"if {' or '.join(places)}: {NO}"] if places else []
    return Questions(lines, {"same": comparison([*tensors]), "place": torch.Tensor.data_ptr})


def _join(one: Questions, other: Questions) -> Questions:
    return Questions([*one.lines, *other.lines], {**one.names, **other.names})


_OTHERWISE = "return self.otherwise(args, kwargs)"
_OTHERS = "return self.others(args, kwargs)"
_COUNT = "self.hits += 1"
_COUNTED = "self.hits = hits = self.hits + 1"


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
        return written.known([read, f"return {called}"])
    except Exception:  # sparse, without memory, or of a kind that is not compared
        return None


class _Watching(_dispatch.TorchDispatchMode):
    """Looks at every operator."""


class _Written:
    """The source of the function, and what it names."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._names: dict[str, Any] = {}
        self._tensors: dict[str, Any] = {}
        self._lists: dict[str, Sequence[str]] = {}
        self._about = ""
        self._count = 0

    def each(self, name: str, values: Any, kind: str = "") -> list[str]:
        """Of a list or tuple, and the names of what is in it; `kind` is the name of its type, where it may be another."""
        other = f"type({name}) is not {kind} or " if kind else ""
        parts = [self._new() for _ in values]
        if kind == "list" and values and all(type(one) in _TENSORS for one in values):
            self._lists[name], self._about = parts, name
        self._unless(f"{other}len({name}) != {len(values)}" if values or other else name)
        if parts:
            self._then(f"{', '.join(parts)}, = {name}")
        self._about = ""
        self._all(parts, values)
        return parts

    def named(self, name: str, values: dict[str, Any]) -> list[str]:
        """Of a dictionary, in its order, and the names of what is in it."""
        if any(type(key) is not str for key in values):
            raise TypeError
        parts, names = [self._new() for _ in values], [self._new() for _ in values]
        self._unless(f"len({name}) != {len(values)}" if values else name)
        if values:
            self._then(f"{', '.join(names)}, = {name}")
            self._unless(" or ".join(f"{one} != {key!r}" for one, key in zip(names, values, strict=True)))
        for part, key in zip(parts, values, strict=True):
            self._then(f"{part} = {name}[{key!r}]")
        self._all(parts, values.values())
        return parts

    def known(self, call: Sequence[str]) -> KnownCall | None:
        tensors = list(self._tensors.values())
        if not tensors or not comparison(tensors)(*tensors):  # the same tensor twice
            return None
        return KnownCall(Parts(self._lines, self._names, list(self._tensors), self._lists), tensors, call)

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
            self._then(f"{held} = {name}.__dict__")
            self.named(held, vars(value))
        else:
            raise TypeError

    def _unless(self, differs: str) -> None:
        self._then(f"if {differs}: {NO}")

    def _then(self, line: str) -> None:
        self._lines.append(_Line(line, self._about))

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
