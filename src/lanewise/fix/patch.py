"""Exchanging the `forward` of one module object, or the implementation of one `Entry`, with a guarded faster one.

Nothing but the one object is touched: not its class, not its weights, not torch. The replacement takes only calls of a
proven kind; every other call runs the original, exactly, and is counted under the part of the guard that sent it there.
"""

from __future__ import annotations

import copy
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.call_kinds import call_kind, why_not
from lanewise.fix.subject import Entry

__all__ = ["Dispatch", "ForwardPatch"]

torch: Any = torch_part()
_compiling: Any = torch.compiler.is_compiling


class Dispatch:
    """Stands in for `forward`.

    Attributes:
        original: what it replaces. fast: what takes the calls of a proven kind; a callable that has to know the kind itself
            has an attribute `by_kind`, which is given kind, args and kwargs, and the kind is not found out twice.
        calls, hits: how many it saw and how many took the fast path. fallbacks: the others, by reason.
    """

    def __init__(self, owner: Any, original: Callable[..., Any], fast: Callable[..., Any]) -> None:
        self.owner = owner
        self.original = original
        self.fast = fast
        self._by_kind: Callable[..., Any] | None = getattr(fast, "by_kind", None)
        self.proven: set[tuple[Any, ...]] = set()
        self.learning = False
        self.hits = 0
        self.fallbacks: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        """Calls seen."""
        return self.hits + self.fallbacks.total()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Inside somebody else's compiled region the original is what can be traced.
        if _compiling():
            return self.original(*args, **kwargs)
        kind = call_kind((args, kwargs), self.owner.training if isinstance(self.owner, torch.nn.Module) else False)
        if kind not in self.proven:
            if not self.learning:
                self.fallbacks[why_not(kind, list(self.proven))] += 1
                return self.original(*args, **kwargs)
            self.proven.add(kind)
        self.hits += 1
        return self.fast(*args, **kwargs) if self._by_kind is None else self._by_kind(kind, args, kwargs)

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
        self._before: Any = None
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
        self._before = self.target.implementation if entry else vars(self.target).get("forward")
        # An interrupt may come anywhere: from here on `disable` has something to undo.
        self._on = True
        if entry:
            self.target.implementation = self._dispatch
        else:
            self.target.forward = self._dispatch

    def disable(self) -> None:
        """Take the patch off: the object is as it was before."""
        if not self._on:
            return
        if isinstance(self.target, Entry):
            self.target.implementation = self._before
        elif self._before is None:
            vars(self.target).pop("forward", None)
        else:
            self.target.forward = self._before
        self._on = False


def _same(value: Any) -> Any:
    return value
