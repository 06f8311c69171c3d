"""What a fast path stands on besides the arguments of a call: modes, attributes, hooks, parts and parameters of modules,
and what a function finds in its closure and globals.

A graph replays and a fused kernel computes what was there when it was made. In every call it is asked whether that still
holds; dictionaries that nobody has changed need not be looked at (`guard.changed`).
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import is_, itemgetter
from typing import Any

from lanewise.fix.guard.changed import Changed, changed_among
from lanewise.fix.guard.code_reads import dict_of_class, reads_of
from lanewise.fix.guard.contents import Contents, cells_of, inside_of, may_change
from lanewise.fix.guard.memory import REFERENCES_AT, TYPE_AT, WORD, Words, lies_as_known
from lanewise.fix.guard.program_parts import of_library
from lanewise.fix.guard.still import Still
from lanewise.fix.guard.trainable import Trainable
from lanewise.fix.telling import same_object, told
from lanewise.fix.typed_torch import torch

__all__ = ["REASONS", "Ground"]

_Handle: Any = torch.utils.hooks.RemovableHandle
_grad_on: Any = torch.is_grad_enabled
_references: Any = sys.getrefcount

_OF_TORCH: list[tuple[Any, str]] = [
    (torch.compiler, "_is_compiling_flag"),
    (torch.autograd.forward_ad, "_current_level"),
]
"""Variables that say that torch makes something else of a call: it is exported, or dual numbers are about."""

REASONS = ("training mode", "attributes", "hooks", "parts", "parameters", "buffers", "methods", "closure")
"""What may have changed: the name under which a fallback is counted."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS: list[dict[Any, Any]] = [
    held for name in _HOOKS if isinstance(held := getattr(torch.nn.modules.module, f"_global{name}", None), dict)
]
_OFTEN, _FEW = 3, 60
_HELD = {"_parameters": "parameters", "_buffers": "buffers", "_modules": "parts"}

_BY_THEMSELVES = {*_HELD, *_HOOKS}

# What decides about saving and loading only, and what `torch.compile` notes on a module that somebody else has it compile.
_NOT_ATTRIBUTES = frozenset(
    {
        "_compiled_call_impl",
        "_non_persistent_buffers_set",
        "_is_full_backward_hook",
        "_is_torch_compile",
    }
)

# Methods that no call of a module runs; torch's compiler exchanges two of them.
_MAKING = frozenset(
    f"__{name}__" for name in ("init", "new", "setstate", "getstate", "reduce", "reduce_ex", "deepcopy", "del")
)


class _Holder:
    """A dictionary, and what is in it as long as nothing has changed.

    Attributes:
        own: names that the program itself writes while it runs: they do not count. settled: how often it was found changed,
            and all that counts the same.

    Args:
        only: names that count. module: whether it is all that a module holds. root: of the one whose forward is replaced.
        kind: whether it is a class's, whose functions and attributes count, and not what Python notes there.
    """

    def __init__(
        self,
        held: dict[Any, Any],
        reason: str,
        *,
        only: Sequence[str] | None = None,
        module: bool = False,
        root: bool = False,
        kind: bool = False,
    ) -> None:
        self.held, self.reason = held, reason
        self._only, self._module, self._root, self._kind = only, module, root, kind
        self.settled = 0
        self.own: set[Any] = set()
        self.expected = self.now()
        self._objects = self._look_inside()

    def now(self) -> dict[Any, Any]:
        names: Any = self.held if self._only is None else [name for name in self._only if name in self.held]
        found: dict[Any, Any] = {}
        for name in list(names):
            if name in self.own or (self._module and name in _NOT_ATTRIBUTES):
                continue
            value = self.held[name]
            if self._kind and (name in _MAKING or not _counts(name, value)):
                continue
            if name in _BY_THEMSELVES and self._module:
                # What is in it is looked at by itself.
                found[name] = same_object(value)
                continue
            if name == "forward" and self._module:
                # Another patch takes only calls that are its own. Whoever stands above this one has called it.
                value = None if self._root else _under_patches(value, self.held)
                if value is None:
                    continue
            found[name] = told(value)
        return found

    def holds_the_same(self) -> bool:
        """Whether what is looked into by itself still is what it holds: objects that are alike are not those."""
        now = self._look_inside()
        return all(now.get(name, self) is one for name, one in self._objects.items())

    def _look_inside(self) -> dict[Any, Any]:
        names = self.expected if self._only is None else self._only
        return {name: self.held[name] for name in names if name in self.held and may_change(self.held[name])}

    def differing(self) -> list[Any]:
        now = self.now()
        if now == self.expected:
            return []
        return [name for name in {**now, **self.expected} if now.get(name, self) != self.expected.get(name, self)]

    def by_value(self) -> Callable[[], bool] | None:
        """What tells that it holds the very same values as now, however often it is written to; None if there are many."""
        names, held, every = list(self.expected), self.held, self._only is None
        if not names or len(names) > _FEW or any(name not in held for name in names):
            return None
        read, count = itemgetter(*names, names[0]), len(held)
        values = read(held)

        def same() -> bool:
            try:
                return all(map(is_, read(held), values)) and (not every or len(held) == count)
            except KeyError:
                return False

        return same


def _counts(name: str, value: Any) -> bool:
    """Whether it is what a class is written to have, and not what Python notes there."""
    return not name.startswith("__") or isinstance(value, types.FunctionType)


class _HookNames(_Holder):
    """torch's count of hooks: once one was registered anywhere, whether these modules have the same ones.

    Their dictionaries of hooks are mostly empty, and too many to look at each.
    """

    def __init__(self, modules: Sequence[Any]) -> None:
        self._modules = modules
        super().__init__(dict_of_class(_Handle), "hooks")

    def now(self) -> dict[Any, Any]:
        return {(at, *name): None for at, module in enumerate(self._modules) for name in _hook_names(module)}

    def holds_the_same(self) -> bool:
        return True

    def by_value(self) -> None:
        return None


class Ground:
    """What some modules and functions are now, and whether they still are.

    Args:
        modules: roots, with everything in them. function: whose closure and globals count, too.
        root: the module whose forward is replaced: what its `forward` is does not count.
    """

    def __init__(self, modules: Sequence[Any], function: Any = None, root: Any = None) -> None:
        every = list({id(module): module for top in modules for module in top.modules()}.values())
        reads = reads_of(every, function)
        inside = {
            "attributes": inside_of([one for module in every for one in _attributes_of(module)]),
            "hooks": inside_of([hook for module in every for held in _hooks_of(module) for hook in held.values()]),
            "closure": inside_of(reads.values, cells_of(function)),
        }
        self._holders = [holder for module in every for holder in _of_module(module, module is root)]
        self._holders += [_Holder(held, "hooks") for module in every for held in _hooks_of(module)]
        self._holders += [_Holder(held, "hooks") for held in _GLOBAL_HOOKS if every]
        self._holders += [_HookNames(every)] if every else []
        self._holders += [_Holder(dict_of_class(kind), "methods", kind=True) for kind in reads.classes]
        self._holders += [_Holder(held, "closure", only=sorted(names)) for held, names in reads.names.values()]
        self._holders += [_Holder(held, reason) for reason, found in inside.items() for held in found.dicts]
        self._holders += [_Holder(vars(owner), "transform", only=[name]) for owner, name in _OF_TORCH]
        self._contents = Contents(inside)
        self._trainable = Trainable([p for module in every for p in module._parameters.values() if p is not None])
        self._modules, self._types = every, [type(module) for module in every]
        # Of torch's own layers, of which there are many, the class is looked at when something else has changed.
        own = [module for module in every if not of_library(module)] if lies_as_known() else []
        self._type_places = [id(module) + TYPE_AT for module in own]
        self._dicts: Changed = changed_among([holder.held for holder in self._holders])
        # Globals of a script change all the time, mostly others than those that are read.
        self._by_value: set[int] = set()
        self._sets, self._set = _sets_of(root)
        self._holding = _references(self._sets[self._set]) if self._sets else 0
        self._words: dict[bool, Words] = {}
        self._asked: dict[bool, Still] = {}

    def holders(self) -> int:
        """How often that is referred to which only the module, its shallow copies and who looks into it refer to."""
        return _references(self._sets[self._set]) if self._sets else 0

    def alone(self, holders: int) -> bool:
        """Whether with so many no other module, a shallow copy say, has the forward that was replaced. Where there are more
        there need not be one: torch's compiler refers to what it has compiled."""
        return holders == self._holding

    def look(self, grad: bool, holders: int) -> tuple[str, Still | None]:
        """What no longer holds, "" if all does; and what tells in a few reads of memory that all still does, if anything.

        Args:
            grad: whether gradients are on, now and whenever that is asked. holders: as many as there still are to be.
        """
        if (known := self._asked.get(grad)) is not None and known.holds():
            return "", known
        # First what is there is read, and then found to be as it was: what comes in between is a change.
        asked = self._ask(grad, holders)
        reason = self._gone()
        if reason or not self._dicts.none(self._by_value):
            # What was put in place of something equal is looked at each time. Nothing is kept alive by what asks for it.
            self._asked = {}
            return reason, None
        self._asked[grad] = asked
        return "", asked

    def _gone(self) -> str:
        if not self._of_the_same_classes():
            return "methods"
        if self._dicts.none() and not self._contents.changed() and (not _grad_on() or self._trainable.same()):
            return ""
        return self._look()

    def _ask(self, grad: bool, holders: int) -> Still:
        contents, trainable = self._contents.quickly(), self._trainable.places
        values = {at: same for at in self._by_value if (same := self._holders[at].by_value()) is not None}
        tale = self._dicts.telltale(values.keys())
        asked: list[Callable[[], bool]] = list(values.values())
        asked += [] if tale is not None else [partial(self._dicts.none, values.keys())]
        asked += [] if trainable is not None or not grad else [self._trainable.same]
        asked += [] if lies_as_known() else [self._of_the_same_classes, lambda: self.holders() == holders]
        asked += [] if contents.same is None else [contents.same]
        shared = [id(self._sets[self._set]) + REFERENCES_AT] if lies_as_known() and self._sets else []
        places = [*shared, *(() if tale is None else tale.places), *self._type_places, *contents.places]
        words, flags = self._words.get(grad), list[int]()
        if grad and trainable is not None:
            places, flags = places + trainable[0], trainable[1]
        if words is None or words.places != places or words.flags != flags:
            words = self._words[grad] = Words(places, flags)
        seen = words.now().tobytes()
        if shared:
            # Without the one that was counting.
            seen = (holders - 1).to_bytes(WORD, "little") + seen[WORD:]
        return Still([True] if tale is None else tale.unchanged, words, seen, contents.held, asked)

    def _of_the_same_classes(self) -> bool:
        return list(map(type, self._modules)) == self._types

    def _look(self) -> str:
        """The same, looked at closely."""
        if not self._dicts.none():
            for at in list(self._dicts.which()):
                holder = self._holders[at]
                if names := holder.differing():
                    return "training mode" if names == ["training"] else holder.reason
                if holder.holds_the_same():
                    self._dicts.settle(at)
                    holder.settled += 1
                    if holder.settled >= _OFTEN:
                        self._by_value.add(at)
                else:
                    self._by_value.discard(at)
        if reason := self._contents.changed():
            return reason
        return "parameters" if _grad_on() and not self._trainable.same() else ""

    def allow_own(self) -> None:
        """What has changed by now, the program itself has changed while it ran: the fast path does not stand on it."""
        for at in list(self._dicts.which()):
            holder = self._holders[at]
            names = holder.differing()
            holder.own.update(name for name in names if name != "training")
            holder.expected = {name: one for name, one in holder.expected.items() if name not in holder.own}
            if not holder.differing() and holder.holds_the_same():
                self._dicts.settle(at)
        self._contents.allow_changed()
        self._words, self._asked = {}, {}


_SETS: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


def _sets_of(module: Any) -> tuple[list[Any], int]:
    """A set that only a module holds, and shallow copies and replicas of it, which also have its forward: the list where it
    is kept, once for all who ask for it, and its number there."""
    held = None if module is None else vars(module).get("_non_persistent_buffers_set")
    if held is None:
        return [], 0
    kept = _SETS.setdefault(module, [])
    if not any(one is held for one in kept):
        kept.append(held)
    return kept, next(at for at, one in enumerate(kept) if one is held)


def _of_module(module: Any, root: bool) -> list[_Holder]:
    held = vars(module)
    found = [_Holder(held, "attributes", module=True, root=root)]
    return found + [_Holder(held[name], reason) for name, reason in _HELD.items() if held.get(name)]


def _hooks_of(module: Any) -> list[dict[Any, Any]]:
    """Dictionaries of hooks with something in them."""
    return [held for name in _HOOKS if (held := vars(module).get(name))]


def _hook_names(module: Any) -> list[tuple[str, Any]]:
    return [(name, key) for name in _HOOKS for key in vars(module).get(name) or ()]


def _attributes_of(module: Any) -> list[Any]:
    """Values of attributes that may have something in them. Those of torch's own layers are never written to."""
    if type(module).__module__.startswith("torch."):
        return []
    return [value for name, value in vars(module).items() if name not in _NOT_ATTRIBUTES | _BY_THEMSELVES | {"forward"}]


def _under_patches(forward: Any, held: dict[Any, Any]) -> Any:
    """What a module's `forward` is without patches; None for that of its class."""
    while (below := getattr(forward, "lanewise_below", None)) is not None:
        forward = below
    function = getattr(forward, "__func__", None)
    owner = getattr(forward, "__self__", None)
    own = owner is not None and vars(owner) is held and function is getattr(type(owner), "forward", None)
    return None if own else forward
