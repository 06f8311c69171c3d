"""C3 beyond one backward pass: gradients add up, come from one result alone, come twice, notice what was changed in
between, and can be differentiated again where the original's can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lanewise.fix.gate.observe import cotangents
from lanewise.fix.model import Check
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call, tensors_of, values_of
from lanewise.fix.torch_types import Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["Backward"]


Gradients = list[Any]
"""One per input and parameter that has any; None where there is none."""

Close = Callable[[Gradients, Gradients], bool]

_MOST_RESULTS = 4
_LARGE = 4096.0
"""Times what they are elsewhere, which shows limits; in half precision they would overflow."""


class Backward:
    """What the original does is found out once.

    Args:
        subject: unpatched; of training. close: whether two lists of gradients of the same call agree.
    """

    def __init__(self, subject: Subject, state: State, close: Close) -> None:
        self._subject, self._state, self._close = subject, state, close
        ways: dict[str, Callable[[], Gradients]] = {
            "gradients add to those that are there": self._added,
            "backward twice": self._twice,
            "of large gradients": lambda: self._plain(times=_LARGE),
        }
        count = self._results()
        if count > 1:
            for at in range(min(count, _MOST_RESULTS)):
                ways[f"of result {at} alone"] = lambda at=at: self._plain(only=at)
        if self._inputs():
            ways["second derivatives"] = self._second
        self._ways = {name: (way, found) for name, way in ways.items() if (found := self._tried(way)) is not None}
        self._once = self._tried(self._plain)
        self._noticed = [
            what for what in ("inputs", "parameters") if self._tried(lambda w=what: self._between(w)) is None
        ]

    def check(self, refuses: Sequence[str] = ()) -> list[Check]:
        """The checks, with the candidate in place; `refuses`: those that it may answer with an error."""
        checks: list[Check] = []
        for name, (way, expected) in self._ways.items():
            try:
                found = way()
            except Exception as error:
                self._state.restore()
                problem = f"raises {type(error).__name__}: {' '.join(str(error).split())[:120]}"
                if name in refuses:
                    checks.append(Check(f"C3 {name}", True, f"refused: it {problem}"))
                    continue
            else:
                problem = "" if self._alike(expected, found) else "other gradients than the original's"
            checks.append(Check(f"C3 {name}", not problem, problem))
        for what in self._noticed:
            # The original refuses; right gradients of what was there before would do, too.
            found = self._tried(lambda what=what: self._between(what))
            right = found is None or (self._once is not None and self._alike(self._once, found))
            text = "" if right else "wrong gradients where the original raises an error"
            checks.append(Check(f"C3 {what} changed before the backward pass", right, text))
        return checks

    def _alike(self, expected: Gradients, found: Gradients) -> bool:
        if len(expected) != len(found):
            return False
        pairs = list(zip(expected, found, strict=True))
        # A compiler gives zeros where eager gives nothing.
        missing = [(a, b) for a, b in pairs if (a is None) != (b is None)]
        if any(bool(one.any()) for pair in missing for one in pair if one is not None):
            return False
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        return self._close([a for a, _ in both], [b for _, b in both])

    def _tried(self, way: Callable[[], Gradients]) -> Gradients | None:
        try:
            return way()
        except Exception:
            return None
        finally:
            self._state.restore()

    def _forward(self) -> tuple[Any, list[Any], list[Any]]:
        seed(self._subject, 0)
        call = copy_call(self._subject.calls[0])
        roots = [t for t in tensors_of(self._subject.entry(*call[0], **call[1])) if t.requires_grad]
        return call, roots, self._subject.differentiable(call)

    def _results(self) -> int:
        try:
            return len(self._forward()[1])
        finally:
            self._state.restore()

    def _inputs(self) -> bool:
        return any(t.requires_grad and t.is_leaf for t in tensors_of(self._subject.calls[0]))

    def _plain(self, only: int | None = None, times: float = 1.0) -> Gradients:
        _, roots, wanted = self._forward()
        back = [one if one.dtype.itemsize < 4 else one * times for one in cotangents(roots, "contiguous")]
        chosen = slice(None) if only is None else slice(only, only + 1)
        return self._copied(torch.autograd.grad(roots[chosen], wanted, back[chosen], allow_unused=True))

    def _added(self) -> Gradients:
        _, roots, wanted = self._forward()
        back = cotangents(roots, "contiguous")
        before = [one.grad for one in wanted]
        for one, given in zip(wanted, cotangents(wanted, "contiguous"), strict=True):
            one.grad = given.detach()
        try:
            torch.autograd.backward(roots, back)
            return self._copied([one.grad for one in wanted])
        finally:
            for one, grad in zip(wanted, before, strict=True):
                one.grad = grad

    def _twice(self) -> Gradients:
        _, roots, wanted = self._forward()
        back = cotangents(roots, "contiguous")
        first = self._copied(torch.autograd.grad(roots, wanted, back, allow_unused=True, retain_graph=True))
        return first + self._copied(torch.autograd.grad(roots, wanted, back, allow_unused=True))

    def _second(self) -> Gradients:
        call, roots, wanted = self._forward()
        inputs = [t for t in tensors_of(call) if t.requires_grad and t.is_leaf]
        back = cotangents(roots, "contiguous")
        first = list[Tensor | None](torch.autograd.grad(roots, inputs, back, create_graph=True, allow_unused=True))
        penalties = [one.square().sum() for one in first if one is not None]
        penalty: Any = torch.stack(penalties).sum() if penalties else None
        if penalty is None or not penalty.requires_grad:
            return []
        return self._copied(torch.autograd.grad(penalty, wanted, allow_unused=True))

    def _between(self, what: str) -> Gradients:
        """What was given, or is held, is changed in place between the two passes; and back, in the end."""
        call, roots, wanted = self._forward()
        tensors = tensors_of(call) if what == "inputs" else self._subject.parameters()
        changed = [t for t in tensors if t.dtype.is_floating_point]
        back = cotangents(roots, "contiguous")
        with torch.no_grad():
            for tensor in changed:
                tensor.neg_()
        try:
            return self._copied(torch.autograd.grad(roots, wanted, back, allow_unused=True))
        finally:
            with torch.no_grad():
                for tensor in changed:
                    tensor.neg_()

    def _copied(self, gradients: Sequence[Tensor | None]) -> Gradients:
        found = [None if one is None else values_of(one) for one in gradients]
        self._state.restore()
        return found
