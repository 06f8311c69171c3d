"""Whether parameters still need a gradient, or none, as they did: asked for in every call with gradients on.

torch tells nobody when `requires_grad` changes, and reading it takes 50 ns a parameter: more than all else that is asked.
It is a byte in what autograd keeps of a tensor. Where that lies is found out by changing it on a few tensors of our own;
those of all parameters are then read at once. One that needed none may come to need it by what is written to it: then
autograd keeps the operation. Where these are not found, each parameter is asked.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from lanewise.fix.guard.memory import WORD, Words
from lanewise.fix.typed_torch import torch

__all__ = ["Trainable", "kept_by_autograd"]

_trainable: Any = attrgetter("requires_grad")

_WORDS, _BYTES = 16, 160
"""How much of a tensor, and of what autograd keeps of it, is looked at to find the places."""


class Trainable:
    """Of some parameters, which are kept alive: their memory is read.

    What autograd keeps of a tensor lies at one place as long as there is the tensor, from when it first needs a gradient.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = list(parameters)
        self._expected = tuple(map(_trainable, self._parameters))
        self._place = kept_by_autograd() if self._parameters and all(map(_plain, self._parameters)) else None
        # torch gives no tensor another's memory that has a weak reference to it.
        self._alive = [weakref.ref(one) for one in self._parameters] if self._place else []
        self._words = self._read()

    def _read(self) -> Words | None:
        if self._place is None:
            return None
        place = self._place
        pointers = [one._cdata + WORD * place.word for one in self._parameters]
        kept = Words(pointers).now().tolist()
        # What never needed a gradient has nothing there yet.
        nothing = [at for at, one in zip(pointers, kept, strict=True) if not one]
        # To what needs a gradient nothing is written that autograd follows.
        written = [one + place.operation for one, needs in zip(kept, self._expected, strict=True) if one and not needs]
        return Words(nothing + written, [one + place.byte for one in kept if one])

    @property
    def places(self) -> tuple[list[int], list[int]] | None:
        """Addresses of words and flags that stay while all is as it was; None where the parameters have to be asked."""
        if not self._parameters:
            return [], []
        return None if self._words is None else (self._words.places, self._words.flags)

    def same(self) -> bool:
        """Whether every one is as it was."""
        if self._words is not None and self._words.same():
            return True
        same = tuple(map(_trainable, self._parameters)) == self._expected
        if same:
            self._words = self._read()
        return same


class _Place(NamedTuple):
    """Number of the word of a tensor that points to what autograd keeps of it; there, of the byte, and of the first byte of
    what points to the operation that has written to the tensor."""

    word: int
    byte: int
    operation: int


def _plain(parameter: Any) -> bool:
    """Whether it is a tensor of torch's own making, which lies in memory like ours."""
    return type(parameter) in (torch.Tensor, torch.nn.Parameter)


@cache
def kept_by_autograd() -> _Place | None:
    """Where the byte is; None unless the same place, and only that, follows every change on several tensors."""
    if ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    with torch.inference_mode(False), torch.enable_grad():
        found = {_place_in(torch.empty(size)) for size in (0, 3, 3)}
    return found.pop() if len(found) == 1 else None


def _place_in(tensor: Any) -> _Place | None:
    def word(at: int) -> int:
        return ctypes.c_uint64.from_address(tensor._cdata + WORD * at).value

    before = [word(at) for at in range(_WORDS)]
    tensor.requires_grad_(True)
    appeared = [at for at in range(_WORDS) if not before[at] and word(at)]
    if len(appeared) != 1:
        return None
    kept = (ctypes.c_uint8 * _BYTES).from_address(word(appeared[0]))
    needs, has = [True, False, False, True, False], list[bytes]()
    for one in needs:
        tensor.requires_grad_(one)
        has.append(bytes(kept))
    follow = [at for at in range(_BYTES) if [seen[at] for seen in has] == [int(one) for one in needs]]
    tensor.mul_(torch.ones_like(tensor, requires_grad=True))
    now, none = bytes(kept), bytes(WORD)
    written = [at for at in range(0, _BYTES, WORD) if has[-1][at : at + WORD] == none != now[at : at + WORD]]
    return _Place(appeared[0], follow[0], written[0]) if len(follow) == 1 and written else None
