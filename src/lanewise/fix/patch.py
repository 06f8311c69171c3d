"""Exchanging the `forward` of one module object, or the implementation of one `Entry`, with a guarded faster one.

Nothing but the one object is touched: not its class, not its weights, not torch. The replacement takes only calls of a
proven kind, and only while what it was built on is as it was; every other call runs the original, exactly, and is counted
under the part of the guard that sent it there.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import call_key, call_kind, why_not
from lanewise.fix.guard.ground import Ground
from lanewise.fix.guard.known_call import Among, KnownCall, known_call
from lanewise.fix.guard.process_state import process_state, watches
from lanewise.fix.guard.still import Still
from lanewise.fix.guard.written import OTHER, Questions
from lanewise.fix.subject import Entry
from lanewise.fix.torch_types import Module
from lanewise.fix.typed_torch import torch

__all__ = ["Dispatch", "ForwardPatch"]

_compiler: Any = torch.compiler
_in_compiler: Any = _compiler.is_dynamo_compiling
_torch_c: Any = torch_part("torch._C")
_tracing: Any = _torch_c._get_tracing_state
_Module: Any = torch.nn.Module
_CALLERS = frozenset({_Module._call_impl.__code__, _Module._slow_forward.__code__})

# Something looks at every operator, or differentiates or batches what it is given (`torch.func`, dual numbers): values are
# not what they seem then, and a fast path would hide its operators.
_grad_on: Any = torch.is_grad_enabled
_modes: Any = _torch_c._len_torch_dispatch_stack
_transforms: Any = _torch_c._functorch.peek_interpreter_stack
_forward_ad: Any = torch.autograd.forward_ad

_UNDONE = "undone"
_MOST_REFUSED = 256
"""Kinds of calls whose reason is remembered."""
_MOST_KNOWN = 4
"""Kinds that a call is compared with before its own is found out: telling one takes 0.5 us, finding it out 3 to 60."""


_LOOK_FIRST, _LOOK_AGAIN = 8, 1000
"""Calls after which tensors are looked for that are the same in every call; the first time, and where they were others:
that takes 0.2 ms."""


class _Known(NamedTuple):
    """A kind of calls while the process is as given: its key, what takes such calls, and what tells that a call is one."""

    key: tuple[Any, ...]
    call: KnownCall
    process: Questions
    fits: Callable[[Any, Any], Any]


class _Recent(NamedTuple):
    """A kind of the last calls, and what takes such a call while all is as it was.

    Attributes:
        alone: whether the module is the only one with this forward. among: tensors that are to be the same in every call.
            look: after how many calls they are looked for.
    """

    known: _Known
    still: Still
    take: Callable[[Any, Any, Any], Any]
    alone: bool
    among: Among | None
    look: int

    def written(self) -> Callable[..., Any]:
        """The same as the method of a dispatch."""
        call, process, key = self.known.call, self.known.process, self.known.key
        if self.among is not None:
            return call.take_same(process, key, self.still, _in_compiler, self.among)
        look = self.look if call.may_be_same(self.still) else None
        return call.take_first(process, key, self.still, _in_compiler, look)


class Dispatch:
    """Stands in for `forward`.

    Attributes:
        original: what it replaces. fast: what takes the calls of a proven kind. by_kind: the same, where it has to know the
            kind itself: given its key, args and kwargs, the kind is not found out twice.
        proven: by key, the kinds of the calls that are taken. ground: what the fast path was built on.
        learning: whether the calls that are made now are of a proven kind.
        withdrawn: why no call is taken any more; "" while they are. restores: what stood here before, None for nothing.
        calls, hits: how many it saw and how many took the fast path. fallbacks: the others, by reason.
    """

    def __new__(cls, owner: Any, original: Callable[..., Any], fast: Callable[..., Any]) -> Self:
        # Python calls what the class has: the function that takes the next call stands in a class of its own.
        return super().__new__(cast(type[Self], type(cls.__name__, (cls,), {})))

    def __init__(self, owner: Any, original: Callable[..., Any], fast: Callable[..., Any]) -> None:
        self.owner = owner
        self._module = owner if isinstance(owner, torch.nn.Module) else None
        self.original = original
        self.fast = fast
        self.by_kind: Callable[..., Any] | None = getattr(fast, "by_kind", None)
        self.ground = (
            Ground([owner], root=owner)
            if self._module is not None
            else Ground(getattr(owner, "modules", ()), getattr(owner, "original", None))
        )
        self.proven: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._refused: dict[tuple[Any, ...], str] = {}
        # By key: what compares calls with one of this kind; and with the state of the process beside it.
        self._written: dict[tuple[Any, ...], KnownCall] = {}
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._recent = ()
        self._learning = False
        self._withdrawn = ""
        self.restores: Any = None
        self.hits = 0
        self.fallbacks: Counter[str] = Counter()

    @property
    def learning(self) -> bool:
        return self._learning

    @learning.setter
    def learning(self, value: bool) -> None:
        self._learning = value
        self._recent = ()

    @property
    def withdrawn(self) -> str:
        return self._withdrawn

    @withdrawn.setter
    def withdrawn(self, value: str) -> None:
        self._withdrawn = value
        self._recent = ()

    @property
    def original(self) -> Callable[..., Any]:
        """What it stands in for. The method of the module's class is the one that the class has now."""
        return (
            types.MethodType(cast(Any, type(self._module)).forward, self._module) if self._of_class else self._original
        )

    @original.setter
    def original(self, value: Callable[..., Any]) -> None:
        module = self._module
        own = None if module is None else vars(module).get("forward")
        method = getattr(type(module), "forward", None)
        self._original = value
        self._of_class = (own is None or isinstance(own, Dispatch)) and _is_method(value, method, module)

    @property
    def calls(self) -> int:
        """Calls seen."""
        return self.hits + self.fallbacks.total()

    @property
    def lanewise_below(self) -> Callable[..., Any]:
        """What it stands in for, by the name under which patches are recognised."""
        return self.original

    @property
    def __code__(self) -> Any:
        """Of the original: exporters look at it."""
        return self.original.__code__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Inside somebody else's compiled region the original is what can be traced.
        return self.run(args, kwargs) if _in_compiler() else self._closely(args, kwargs)

    @property
    def _recent(self) -> tuple[_Recent, ...]:
        """The last kinds: one value, as threads may call at the same time. The first stands in the place of `__call__`."""
        return self._kinds

    @_recent.setter
    def _recent(self, value: tuple[_Recent, ...]) -> None:
        self._kinds, kind = value, cast(Any, type(self))
        if not value:
            kind.__call__ = Dispatch.__call__
            return
        kind.__call__ = value[0].written() if value[0].alone else Dispatch._of_whom

    def _of_whom(self, *args: Any, **kwargs: Any) -> Any:
        """In the place of `__call__` while another module may have this forward, too, such as a shallow copy."""
        if _in_compiler():
            return self.run(args, kwargs)
        other = _caller(self)
        if other is not None and other is not self._module:
            return self._of(other)(*args, **kwargs)
        for recent in self._recent:
            result = recent.take(self, args, kwargs)
            if result is not OTHER:
                return result
        return self._closely(args, kwargs)

    def look_for_the_same(self, args: Any, kwargs: Any) -> None:
        """In the next call some tensors may be the same as in this one of the last kind."""
        self._expect_the_same(None, args, kwargs)

    def others(self, args: Any, kwargs: Any) -> Any:
        """A call in which not all of those tensors are the same, or something else is not as it was."""
        first = next(iter(self._recent), None)
        result = OTHER if first is None or not first.alone else first.take(self, args, kwargs)
        if result is OTHER:
            return self.otherwise(args, kwargs)
        if first is not None and first.among is not None:
            self._expect_the_same(first.among, args, kwargs)
        return result

    def _expect_the_same(self, before: Among | None, args: Any, kwargs: Any) -> None:
        recent = self._recent
        if recent:
            first = recent[0]
            among = first.known.call.among(args, kwargs, before)
            # First they are read, and then found to be of the kind.
            if among is not None and first.known.fits(args, kwargs) is not True:
                among = None
            self._set_recent(first._replace(among=among, look=self.hits + _LOOK_AGAIN), *recent[1:])

    def otherwise(self, args: Any, kwargs: Any) -> Any:
        """A call that is not of the last kind, or before which something has changed."""
        for recent in self._recent[1:]:
            # Whose call it is has not been asked.
            result = recent.take(self, args, kwargs) if recent.alone else OTHER
            if result is not OTHER:
                return result
        return self._closely(args, kwargs)

    def _closely(self, args: Any, kwargs: Any) -> Any:
        """A call that is not of one of the last kinds, or before which something has changed."""
        if _tracing() is not None or _compiler._is_compiling_flag:
            return self.run(args, kwargs)
        module = self._module
        holders = self.ground.holders()
        alone = self.ground.alone(holders)
        if not alone:
            other = _caller(self)
            if other is not None and other is not module:
                return self._of(other)(*args, **kwargs)
        reason, still = self.ground.look(_grad_on(), holders)
        reason = self.withdrawn or reason
        if reason and not self.learning:
            self._recent = ()
            return self._fall_back(reason, args, kwargs)
        if _modes() or _transforms() is not None or _forward_ad._current_level >= 0 or watches():
            return self._fall_back("transform", args, kwargs)
        key, known = self._known_kind(args, kwargs)
        if key not in self.proven:
            if not self.learning:
                return self._fall_back(self._why_not(key, args, kwargs), args, kwargs)
            self._learn(key, args, kwargs)
        if known is not None and still is not None:
            take = known.call.take(known.process, key, still)
            self._remember(_Recent(known, still, take, alone, None, self.hits + _LOOK_FIRST))
        self.hits += 1
        result = self.fast(*args, **kwargs) if self.by_kind is None else self.by_kind(key, args, kwargs)
        if self.learning:
            self.ground.allow_own()
            self._recent, self._known = (), {}
        return result

    def _remember(self, one: _Recent) -> None:
        """A kind is the first that the next call is compared with."""
        others = [other for other in self._recent if other.known.key != one.known.key]
        self._set_recent(one, *others[: _MOST_KNOWN - 1])

    def _set_recent(self, *recent: _Recent) -> None:
        self._recent = recent
        # It may be withdrawn by another thread meanwhile.
        if self._learning or self._withdrawn:
            self._recent = ()

    def _known_kind(self, args: Any, kwargs: Any) -> tuple[Any, _Known | None]:
        """The key of a call's kind, and what tells of another call that it is of this kind."""
        for key, known in tuple(self._known.items()):
            if known.fits(args, kwargs) is True:
                return key, known
        key = call_key(args, kwargs, False if self._module is None else self._module.training)
        if (written := self._written.get(key)) is None:
            return key, None
        # Whatever else has changed of the process does not decide about the kind. Threads look at it meanwhile: a new one.
        process = process_state()
        known = _Known(key, written, process, written.fits(process))
        others = [(one, before) for one, before in self._known.items() if one != key]
        self._known = {key: known, **dict(others[: _MOST_KNOWN - 1])}
        return key, known

    def _learn(self, key: Any, args: Any, kwargs: Any) -> None:
        self.proven[key] = call_kind((args, kwargs), False if self._module is None else self._module.training)
        self._refused.clear()
        if (written := known_call(args, kwargs, self.by_kind is not None)) is not None:
            self._written[key] = written

    def _fall_back(self, reason: str, args: Any, kwargs: Any) -> Any:
        self.fallbacks[reason] += 1
        return self.run(args, kwargs)

    def run(self, args: Any, kwargs: Any) -> Any:
        """The original; written so that torch's compiler can look into it."""
        if self._of_class:
            return type(self._module).forward(self._module, *args, **kwargs)  # type: ignore[attr-defined]
        return self._original(*args, **kwargs)

    def _why_not(self, key: Any, args: Any, kwargs: Any) -> str:
        if (reason := self._refused.get(key)) is None:
            kind = call_kind((args, kwargs), False if self._module is None else self._module.training)
            reason = why_not(kind, list(self.proven.values()))
            if len(self._refused) < _MOST_REFUSED:
                self._refused[key] = reason
        return reason

    def _of(self, module: Module) -> Callable[..., Any]:
        """The original of another module that has the same attributes."""
        if getattr(self.original, "__self__", None) is self._module:
            return types.MethodType(self.original.__func__, module)  # type: ignore[attr-defined]
        return self.original

    # A copy of the module, in memory or in a file, is the module without the patch: what was proven and compiled holds
    # for this object in this process.

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        owner = memo.get(id(self.owner), self.owner)
        own_forward = getattr(self.original, "__self__", None) is self.owner
        if own_forward:
            return types.MethodType(self.original.__func__, owner)  # type: ignore[attr-defined]
        return copy.deepcopy(self.original, memo)

    def __reduce__(self) -> Any:
        if getattr(self.original, "__self__", None) is self.owner:
            return getattr, (self.owner, "forward")
        return _same, (self.original,)


class ForwardPatch:
    """A patch that can be put on and taken off any number of times.

    Args:
        target: a module, or an `Entry`.
        fast: makes the fast callable from the original one; called once, when the patch is first put on.
    """

    def __init__(self, target: Any, fast: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.target = target
        self._make_fast = fast
        self._dispatch: Dispatch | None = None
        self._on = False

    @property
    def dispatch(self) -> Dispatch:
        """The stand-in, once the patch has been put on."""
        assert self._dispatch is not None
        return self._dispatch

    def enable(self) -> None:
        """Put the patch on."""
        if self._on:
            return
        entry = isinstance(self.target, Entry)
        before = self.target.implementation if entry else self.target.forward
        if self._dispatch is None:
            # On top of another patch the fast path is made of that patch's fast path: one guard is enough, and a
            # compiler sees the plain functions.
            below = before.fast if isinstance(before, Dispatch) else before
            self._dispatch = Dispatch(self.target, before, self._make_fast(below))
        else:
            # What lies below may be another patch than last time.
            self._dispatch.original = before
            self._dispatch.withdrawn = ""
        self._dispatch.restores = self.target.implementation if entry else vars(self.target).get("forward")
        # An interrupt may come anywhere: from here on `disable` has something to undo.
        self._on = True
        if entry:
            self.target.implementation = self._dispatch
        else:
            self.target.forward = self._dispatch

    def disable(self) -> None:
        """Take the patch off: the object is as it was before, but for what others have done to it since."""
        if not self._on:
            return
        self._on = False
        mine, entry = self.dispatch, isinstance(self.target, Entry)
        now = self.target.implementation if entry else vars(self.target).get("forward")
        before = mine.restores
        while isinstance(before, Dispatch) and before.withdrawn == _UNDONE:
            before = before.restores
        if now is not mine:
            # Somebody has put something on top since: that stays, and this takes no more calls.
            mine.withdrawn = _UNDONE
            _withdraw(now, mine)
        elif entry:
            self.target.implementation = before
        elif before is None:
            vars(self.target).pop("forward", None)
        else:
            self.target.forward = before


def _withdraw(top: Any, gone: Dispatch) -> None:
    """What stands on a patch that is gone was proven on top of it: it takes no more calls, either."""
    above: list[Dispatch] = []
    while isinstance(top, Dispatch) and top is not gone:
        above.append(top)
        top = top.original
    for one in above if top is gone else ():
        one.withdrawn = "the plan below it was undone"


def _caller(dispatch: Dispatch) -> Any:
    """The module that is being called, where the frame that called the dispatch tells; None elsewhere."""
    frame = inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None and frame.f_locals.get("self") is dispatch:
        frame = frame.f_back
    return frame.f_locals.get("self") if frame is not None and frame.f_code in _CALLERS else None


def _is_method(value: Any, function: Any, owner: Any) -> bool:
    return function is not None and getattr(value, "__func__", None) is function and value.__self__ is owner


def _same(value: Any) -> Any:
    return value
