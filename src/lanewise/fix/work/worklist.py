"""What one call computes, without a profiler: operators with their FLOP and bytes, counted while they are dispatched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call, tensors_of
from lanewise.fix.torch_types import Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["WorkList", "work_of"]

_modes: Any = torch_part("torch.utils._python_dispatch")
_flops: Any = torch_part("torch.utils.flop_counter")

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "_scaled_mm")
_VIEWS = frozenset(
    {
        "view",
        "expand",
        "permute",
        "t",
        "transpose",
        "detach",
        "slice",
        "select",
        "alias",
        "unsqueeze",
        "squeeze",
        "_unsafe_view",
        "as_strided",
        "split",
        "unbind",
    }
)


@dataclass
class WorkList:
    """Operators of one call.

    Attributes:
        counts: calls by operator. flop: in all. bytes: read and written by each operator, views left out, in all.
        by_kind: bytes by `product`, `attention`, `pointwise` (everything else). outside: bytes of what goes in and comes
            out: arguments, parameters, results. operators: dispatched, views left out.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    flop: float = 0.0
    bytes: float = 0.0
    by_kind: Counter[str] = field(default_factory=Counter[str])
    outside: float = 0.0
    operators: int = 0
    seconds: float = 0.0

    def share(self, kind: str) -> float:
        """Share of the bytes that operators of a kind move: an upper bound on what it can give back where memory limits."""
        return self.by_kind[kind] / self.bytes if self.bytes else 1.0


def work_of(subject: Subject, state: State) -> WorkList:
    """Count one call; an empty list where the program does not run under a dispatch mode."""
    work = WorkList()
    call = copy_call(subject.calls[0])
    try:
        with _Counting(work):
            result = subject.run(call)
        work.outside = float(sum(map(_size, [*tensors_of(call), *tensors_of(result), *subject.parameters()])))
    except Exception:
        return WorkList()
    finally:
        state.restore()
    return work


class _Counting(_modes.TorchDispatchMode):
    def __init__(self, work: WorkList) -> None:
        super().__init__()
        self._work = work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet = getattr(func, "overloadpacket", func)
        name = str(packet).rsplit(".", 1)[-1]
        self._work.counts[name] += 1
        if (formula := _flops.flop_registry.get(packet)) is not None:
            self._work.flop += float(formula(*args, **(kwargs or {}), out_val=result))
        if name not in _VIEWS:
            moved = sum(map(_size, tensors_of((args, kwargs or {})))) + sum(map(_size, tensors_of(result)))
            self._work.operators += 1
            self._work.bytes += moved
            self._work.by_kind[_kind(name)] += moved
        return result


def _kind(name: str) -> str:
    if "attention" in name:
        return "attention"
    return "product" if any(name.startswith(product) for product in _PRODUCTS) else "pointwise"


def _size(tensor: Tensor) -> int:
    """Bytes of distinct elements: a dimension that is only expanded counts once."""
    shape: Sequence[int] = (
        [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
        if tensor.layout is torch.strided
        else tensor.shape
    )
    count = tensor.element_size()
    for n in shape:
        count *= n
    return count
