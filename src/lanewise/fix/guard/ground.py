"""What a fast path stands on besides the arguments of a call: modes, attributes, hooks, parts and parameters of modules,
and what a function finds in its closure and globals.

A graph replays and a fused kernel computes what was there when it was made. In every call it is asked whether that still
holds; dictionaries that nobody has changed need not be looked at (`fix.changed`).
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.changed import Changed, changed_among
from lanewise.fix.telling import told

__all__ = ["REASONS", "Ground"]

torch: Any = torch_part()
_Handle: Any = torch.utils.hooks.RemovableHandle
_grad_on: Any = torch.is_grad_enabled
_trainable: Any = attrgetter("requires_grad")

REASONS = ("training mode", "attributes", "hooks", "parts", "parameters", "buffers", "closure")
"""What may have changed: the name under which a fallback is counted."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HELD = {"_parameters": "parameters", "_buffers": "buffers", "_modules": "parts"}

# What is looked at by itself, and what decides about saving and loading only.
_NOT_ATTRIBUTES = frozenset(
    {*_HELD, *_HOOKS, "_compiled_call_impl", "_non_persistent_buffers_set", "_is_full_backward_hook"}
)


class _Holder:
    """A dictionary, and what is in it as long as nothing has changed.

    Attributes:
        own: names that the program itself writes while it runs: they do not count.

    Args:
        only: names that count. module: whether it is all that a module holds. root: of the one whose forward is replaced.
    """

    def __init__(
        self,
        held: dict[Any, Any],
        reason: str,
        *,
        only: Sequence[str] | None = None,
        module: bool = False,
        root: bool = False,
    ) -> None:
        self.held, self.reason = held, reason
        self._only, self._module, self._root = only, module, root
        self.own: set[Any] = set()
        self.expected = self.now()

    def now(self) -> dict[Any, Any]:
        names: Any = self.held if self._only is None else [name for name in self._only if name in self.held]
        found: dict[Any, Any] = {}
        for name in list(names):
            if name in self.own or (self._module and name in _NOT_ATTRIBUTES):
                continue
            value = self.held[name]
            if name == "forward" and self._module:
                # Another patch takes only calls that are its own. Whoever stands above this one has called it.
                value = None if self._root else _under_patches(value, self.held)
                if value is None:
                    continue
            found[name] = told(value)
        return found

    def differing(self) -> list[Any]:
        now = self.now()
        if now == self.expected:
            return []
        return [name for name in {**now, **self.expected} if now.get(name, self) != self.expected.get(name, self)]


class Ground:
    """What some modules and functions are now, and whether they still are.

    Args:
        modules: roots, with everything in them. function: whose closure and globals count, too.
        root: the module whose forward is replaced: what its `forward` is does not count.
    """

    def __init__(self, modules: Sequence[Any], function: Any = None, root: Any = None) -> None:
        every = {id(module): module for top in modules for module in top.modules()}
        self._modules = list(every.values())
        self._holders = [holder for module in self._modules for holder in _of_module(module, module is root)]
        self._holders += _of_function(function)
        self._lists = [(one, list(one)) for module in self._modules for one in _lists_of(module)]
        self._parameters = [p for module in self._modules for p in module._parameters.values() if p is not None]
        self._trains = tuple(map(_trainable, self._parameters))
        self._hooked = self._hooks()
        self._cells = [(cell, told(value)) for cell, value in _cells_of(function)]
        self._polled = bool(self._hooked or self._lists or self._cells)
        self._handles = _Handle.next_id
        self._dicts: Changed = changed_among([holder.held for holder in self._holders])

    def gone(self) -> str:
        """What no longer holds, "" if all does."""
        if (
            self._dicts.none()
            and self._handles == _Handle.next_id
            and not self._polled
            and (not _grad_on() or tuple(map(_trainable, self._parameters)) == self._trains)
        ):
            return ""
        return self._look()

    def _look(self) -> str:
        """The same, looked at closely."""
        for at in list(self._dicts.which()):
            holder = self._holders[at]
            if names := holder.differing():
                return "training mode" if names == ["training"] else holder.reason
            self._dicts.settle(at)
        if self._handles != _Handle.next_id or self._hooked:
            if self._hooks() != self._hooked:
                return "hooks"
            self._handles = _Handle.next_id
        if any(one != before for one, before in self._lists):
            return "attributes"
        if any(told(_content(cell)) != before for cell, before in self._cells):
            return "closure"
        if _grad_on() and tuple(map(_trainable, self._parameters)) != self._trains:
            return "parameters"
        return ""

    def allow_own(self) -> None:
        """What has changed by now, the program itself has changed while it ran: the fast path does not stand on it."""
        for at in list(self._dicts.which()):
            holder = self._holders[at]
            names = holder.differing()
            holder.own.update(name for name in names if name != "training")
            holder.expected = {name: one for name, one in holder.expected.items() if name not in holder.own}
            if not holder.differing():
                self._dicts.settle(at)
        self._lists = [(one, before) for one, before in self._lists if one == before]
        self._cells = [(cell, before) for cell, before in self._cells if told(_content(cell)) == before]

    def _hooks(self) -> list[Any]:
        """Of everything; empty if there are none. Those of the replaced module itself are called around its forward."""
        found: list[Any] = []
        for module in self._modules:
            held = vars(module)
            for name in _HOOKS:
                if held.get(name):
                    found += [(id(module), name, told(hook)) for hook in held[name].values()]
        return found


def _of_module(module: Any, root: bool) -> list[_Holder]:
    held = vars(module)
    found = [_Holder(held, "attributes", module=True, root=root)]
    found += [_Holder(held[name], reason) for name, reason in _HELD.items() if held.get(name)]
    for name, value in held.items():
        if name not in _NOT_ATTRIBUTES and not isinstance(value, torch.Tensor | torch.nn.Module) and name != "forward":
            found += [_Holder(one, "attributes") for one in _dicts_in(value, set(), 0)]
    return found


def _of_function(function: Any) -> list[_Holder]:
    """Globals that its code names, if they are plain values: others are looked into where they are modules."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return []
    known = function.__globals__
    named = [name for name in function.__code__.co_names if name in known and not callable(known[name])]
    named = [name for name in named if not isinstance(known[name], types.ModuleType)]
    return [_Holder(known, "closure", only=named)] if named else []


def _cells_of(function: Any) -> list[tuple[Any, Any]]:
    """The closure of a function, with what is in it."""
    cells = getattr(getattr(function, "__func__", function), "__closure__", None) or ()
    return [(cell, _content(cell)) for cell in cells]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _dicts_in(value: Any, seen: set[int], depth: int) -> list[dict[Any, Any]]:
    """Dictionaries inside of an attribute: itself, those of a plain object, and of what these hold."""
    if id(value) in seen or depth > 3 or isinstance(value, torch.Tensor | torch.nn.Module | type) or callable(value):
        return []
    seen.add(id(value))
    inside: Any = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if isinstance(value, list | tuple):
        return [one for part in value[:100] for one in _dicts_in(part, seen, depth + 1)]
    if not isinstance(inside, dict) or (inside is value and not inside):
        return []
    return [inside, *(one for part in list(inside.values())[:100] for one in _dicts_in(part, seen, depth + 1))]


def _lists_of(module: Any) -> list[list[Any]]:
    """Lists among a module's attributes. Those of torch's own layers are never written to."""
    if type(module).__module__.startswith("torch."):
        return []
    return [value for value in vars(module).values() if type(value) is list]


def _under_patches(forward: Any, held: dict[Any, Any]) -> Any:
    """What a module's `forward` is without patches; None for that of its class."""
    while (below := getattr(forward, "lanewise_below", None)) is not None:
        forward = below
    function = getattr(forward, "__func__", None)
    owner = getattr(forward, "__self__", None)
    own = owner is not None and vars(owner) is held and function is getattr(type(owner), "forward", None)
    return None if own else forward
