"""Tensors that a call was given, found to be the very same and unchanged in a later call by one read of their memory.

Asking torch what a tensor is and where it lies takes 0.2 us each: more than all else for a cache of many tensors, which
are the same ones in every call. All that is asked for stands in the tensor (type, device, shape, strides, where in its
storage it begins, what looks at it, whether autograd keeps anything of it), in its storage (where the memory is) and in
Python's object (the class). Whether that is so in this torch is found out by changing tensors of our own in every way
that there is; where one is not seen, torch is asked.

No tensor is kept alive, and none is given a weak reference: `torch.utils.swap_tensors` refuses those that have one. So
one thing is read after the other: a tensor that is there has the number of an object that is there, which points to what
torch has of it, whose storage is there. Of storages torch keeps the few words that are read as long as somebody asks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.memory import TYPE_AT, WORD, Words
from lanewise.fix.guard.trainable import kept_by_autograd
from lanewise.fix.typed_torch import torch

__all__ = ["SameTensors", "can_be_told", "looked_at_by", "same_tensors"]

_C: Any = torch_part("torch._C")
_reductions: Any = torch_part("torch.multiprocessing.reductions")
_Tensor: Any = torch.Tensor
_Parameter: Any = torch.nn.Parameter

_COUNTS = 2
"""Words at the beginning of a tensor: its class in C++, and how many refer to it."""
_OF_OBJECT, _WORDS, _OF_STORAGE = 4, 24, 8
"""How much of Python's object, of a tensor and of a storage is looked at."""
_INSIDE = 5
"""Dimensions whose sizes and strides stand in the tensor itself."""


class SameTensors:
    """Some tensors as they are now; they are not kept alive.

    Attributes:
        numbers: of Python's objects. words: of these, to be read where the numbers are as they were, and of the storages.
            bodies: of torch's tensors, to be read where these words are as they were. seen: what is in the bodies, one
            after the other.
    """

    def __init__(self, tensors: Sequence[Any], layout: _Layout) -> None:
        storages = [one.untyped_storage() for one in tensors]
        self._stay = list(map(_reductions.StorageWeakRef, storages))
        self.numbers = list(map(id, tensors))
        kinds, pointers = [one + TYPE_AT for one in self.numbers], [one + layout.pointer * WORD for one in self.numbers]
        self.words = Words([*kinds, *pointers, *(one._cdata + layout.memory * WORD for one in storages)])
        self.bodies = [_bytes(one._cdata + _COUNTS * WORD, one._cdata + layout.words * WORD) for one in tensors]
        self.seen = b"".join(self.bodies)

    def which(self, tensors: Sequence[Any]) -> list[int]:
        """Numbers of those of these that are at the place of the same one, unchanged."""
        words = [np.frombuffer(one, np.uint64) for one in (self.words.now().tobytes(), self.words.seen)]
        same = (words[0] == words[1]).reshape(3, -1).all(axis=0)
        size, alike = len(self.seen) // len(self.bodies), list[int]()
        for at, (tensor, number) in enumerate(zip(tensors, self.numbers, strict=True)):
            if id(tensor) == number and same[at]:
                alike += [at] if bytes(self.bodies[at]) == self.seen[at * size : (at + 1) * size] else []
        return alike


def _bytes(start: int, end: int) -> memoryview:
    return memoryview((ctypes.c_char * (end - start)).from_address(start))


def same_tensors(tensors: Sequence[Any]) -> SameTensors:
    """These, of which each `can_be_told`, as they are now."""
    return SameTensors(tensors, cast(_Layout, _layout()))


def can_be_told(tensors: Sequence[Any]) -> list[int]:
    """Which of some tensors are of torch's own making with nothing kept of them by autograd; and all looked at by the same
    parts of torch, as what else looks at them in a thread is asked of one of them."""
    layout = _layout()
    fit = [] if layout is None else [at for at, one in enumerate(tensors) if layout.fits(one)]
    return [at for at in fit if looked_at_by(tensors[at]) == looked_at_by(tensors[fit[0]])]


def looked_at_by(tensor: Any) -> int:
    """The parts of torch through which operators with a tensor go."""
    return _C._dispatch_keys(tensor).raw_repr()


class _Layout(NamedTuple):
    """Of tensors and storages.

    Attributes:
        pointer: number of the word of Python's object that points to torch's tensor. kind: first word of a tensor of
            torch's own making. words: how many there are. autograd: number of the one that is zero while autograd keeps
            nothing. memory: number of the word of a storage that points to its memory.
    """

    pointer: int
    kind: int
    words: int
    autograd: int
    memory: int

    def fits(self, tensor: Any) -> bool:
        """Whether all that counts stands where it is read."""
        if type(tensor) not in (_Tensor, _Parameter) or tensor.layout is not torch.strided or tensor.dim() > _INSIDE:
            return False
        words = _words(tensor._cdata, self.words)
        return words[0] == self.kind and not words[self.autograd]


def _words(at: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(at))


@cache
def _layout() -> _Layout | None:
    """Of this torch; None unless every change is seen in it, and nothing else."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            found = _find()
            return found if found is not None and _tells(found) else None
    except Exception:
        return None


def _find() -> _Layout | None:
    autograd = kept_by_autograd()
    if autograd is None or ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    tensor: Any = torch.from_numpy(np.zeros(3, np.float32))
    words = _words(tensor._cdata, _WORDS)
    # What looks at a tensor is the last that stands in it.
    last = [at for at, one in enumerate(words) if one == looked_at_by(tensor)]
    pointer = [at for at, one in enumerate(_words(id(tensor), _OF_OBJECT)) if one == tensor._cdata]
    memory = [
        at for at, one in enumerate(_words(tensor.untyped_storage()._cdata, _OF_STORAGE)) if one == tensor.data_ptr()
    ]
    if not last or len(pointer) != 1 or len(memory) != 1 or not _COUNTS <= autograd.word < last[-1]:
        return None
    return _Layout(pointer[0], words[0], last[-1] + 1, autograd.word, memory[0])


def _tells(layout: _Layout) -> bool:
    def seen(change: Callable[[Any], Any], tensor: Any) -> bool:
        one = [tensor]
        del tensor
        if not layout.fits(one[0]):
            raise NotImplementedError
        same = SameTensors(one, layout)
        if not same.which(one):
            return True
        kept = change(one[0])
        differs = not same.which(one)
        del kept
        return differs

    made = lambda: torch.arange(12.0).reshape(3, 4).clone()  # noqa: E731
    changed = all(seen(change, made()) for change in _CHANGES)
    deep = seen(lambda x: x.transpose_(3, 4), torch.zeros(2, 2, 2, 2, 2))
    turned = seen(lambda x: _set_data(x, x.conj()), torch.zeros(2, dtype=torch.complex64))
    return changed and deep and turned and not any(seen(use, made()) for use in _USES)


def _set_data(tensor: Any, other: Any) -> None:
    tensor.data = other


def _set_class(tensor: Any) -> None:
    tensor.__class__ = _Parameter


_CHANGES: list[Callable[[Any], Any]] = [
    lambda x: x.resize_(4, 3),
    lambda x: x.resize_(400),
    lambda x: x.resize_(0),
    lambda x: x.set_(torch.ones(3, 4)),
    lambda x: x.set_(torch.ones(13)[1:].reshape(3, 4)),
    lambda x: _set_data(x, torch.ones(3, 4)),
    lambda x: _set_data(x, torch.ones(3, 4, dtype=torch.float64)),
    lambda x: _set_data(x, torch.ones(4, 3)),
    lambda x: _set_data(x, torch.ones(4, 3).t()),
    lambda x: x.t_(),
    lambda x: x.unsqueeze_(0),
    lambda x: x.as_strided_((3, 4), (1, 3)),
    lambda x: x.as_strided_((3, 2), (4, 1)),
    lambda x: x.as_strided_((2, 4), (4, 1), 1),
    lambda x: x.requires_grad_(),
    lambda x: x.mul_(torch.ones(1, requires_grad=True)),
    lambda x: x.untyped_storage().resize_(0),
    lambda x: x.untyped_storage().resize_(4000),
    lambda x: torch.utils.swap_tensors(x, torch.ones(3, 4)),
    _set_class,
]
"""Ways to change what a tensor is."""

_USES: list[Callable[[Any], Any]] = [
    lambda x: x.zero_(),
    lambda x: x.copy_(torch.ones(4)),
    lambda x: [x, x[0], x.t(), x.detach(), x.data, x.numpy(), memoryview(x.numpy())],
    lambda x: x * torch.ones(1, requires_grad=True),
    lambda x: (x * torch.ones(1, requires_grad=True)).sum().backward(),
    lambda x: [x.grad, x.grad_fn, x._base, x._version, x.untyped_storage(), x.requires_grad_(False)],
]
"""What is done with tensors without changing what they are."""
