"""A CUDA graph of the program, as it is or with faster parts in it: the launches of a call become one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.candidates.capturing import capture
from lanewise.fix.candidates.compiled import MODES, compiler
from lanewise.fix.candidates.predictions import graph_replays
from lanewise.fix.guard.call_kinds import call_key
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors, tensors_of
from lanewise.fix.time_budget import uninterrupted
from lanewise.fix.torch_types import Device
from lanewise.fix.typed_torch import torch

__all__ = ["candidates", "of_compiled", "with_parts"]

_pytree: Any = torch_part("torch.utils._pytree")
_precision: Any = torch.get_float32_matmul_precision
_deterministic: Any = torch.are_deterministic_algorithms_enabled

_WARM_UPS = 3
_ANSWERS = ("LAU101", "LAU103", "LAU106", "LAU110")
_COMPILED = {
    "compile-cuda-graph": "compile",
    "compile-rewritten-cuda-graph": "compile-rewritten",
    "compile-max-autotune-cuda-graph": "compile-max-autotune",
}
"""By candidate: the one whose compiled code it captures."""


def candidates(subject: Subject) -> list[Candidate]:
    """The program as it is: for inference on a CUDA device. A capture that fails is a failed candidate."""
    if not _capturable(subject):
        return []
    return [
        Candidate(
            "cuda-graph",
            "graph",
            "whole",
            "a CUDA graph of the program as it is: one launch per call; inputs and results are copied",
            lambda subject: ForwardPatch(subject.entry, _captured(subject)),
            predictions=(graph_replays(),),
            answers=_ANSWERS,
            engine=True,
            alternative=True,
        )
    ]


def with_parts(subject: Subject, parts: Sequence[Candidate]) -> list[Candidate]:
    """Graphs of the program with another candidate in it.

    What costs the host more than it saves on the device, or saves only there while the host is behind, pays inside of a
    graph.
    """
    return [_with_part(part) for part in parts] if _capturable(subject) else []


def of_compiled(subject: Subject, compiling: Sequence[str]) -> dict[str, Candidate]:
    """A CUDA graph of what the compiler makes of the program, by the name of the candidate that compiles it: for those of
    these that have one."""
    if not _capturable(subject):
        return {}
    return {
        after: Candidate(
            name,
            "compile",
            "whole",
            f"a CUDA graph of what {after} makes: fused kernels, and one launch per call",
            lambda subject, mode=MODES[after][0]: ForwardPatch(
                subject.entry, _captured(subject, compiler(subject, mode))
            ),
            predictions=(graph_replays(),),
            engine=True,
            follows=after,
            # It captures what reduce-overhead would: what anybody has with one line.
            owed=after == "compile",
        )
        for name, after in _COMPILED.items()
        if after in compiling
    }


def _capturable(subject: Subject) -> bool:
    return subject.cuda and subject.kind == "inference" and not subject.random


def _with_part(part: Candidate) -> Candidate:
    def build(subject: Subject) -> Several:
        return Several([part.build(subject), ForwardPatch(subject.entry, _captured(subject))])

    return Candidate(
        f"cuda-graph+{part.name}",
        "graph",
        part.region,
        f"a CUDA graph of the program with {part.what}",
        build,
        predictions=(graph_replays(),),
        engine=True,
        hopeless=part.hopeless,
    )


_making: list[bool] = []


@contextmanager
def _made() -> Generator[None]:
    """While a graph is made the work itself is wanted, not the replay of another graph."""
    _making.append(True)
    try:
        yield
    finally:
        _making.pop()


@contextmanager
def _own_workspace(device: Device) -> Generator[None]:
    """A capture inside gets its workspace for products from the graph's own memory.

    cuBLAS keeps one per stream. A graph that was captured with one from elsewhere writes to it for ever, also after it has
    been given back, which torch's own graphs do before each of theirs: then to somebody else's memory, or to none.
    """
    clear: Callable[[], None] = getattr(torch_part("torch._C"), "_cuda_clearCublasWorkspaces", lambda: None)
    torch.cuda.synchronize(device)
    clear()
    try:
        yield
    finally:
        clear()


class _Graph:
    """One captured call: its static arguments and results, and the addresses that it relies on."""

    def __init__(self, original: Callable[..., Any], args: Any, kwargs: Any, device: Device, where: list[Any]) -> None:
        self.where = where
        arguments = map_tensors(lambda tensor: tensor.detach().clone(), (args, kwargs))
        self._arguments = tensors_of(arguments)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with _made():
            # These compile, where there is something to compile.
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    original(*arguments[0], **arguments[1])
            torch.cuda.current_stream(device).wait_stream(stream)
            # A capture that is left half done leaves its memory to whoever comes next, and takes it away again.
            with uninterrupted(), _own_workspace(device):
                self.graph, self._result = capture(lambda: original(*arguments[0], **arguments[1]), device, stream)
        self._results, self._form = _pytree.tree_flatten(self._result)
        # Objects such as a language model's cache are leaves of a tree, with tensors in them.
        self._objects = len(tensors_of(self._result)) > sum(isinstance(leaf, torch.Tensor) for leaf in self._results)
        self._alone = isinstance(self._result, torch.Tensor)
        self._device = device
        self._stream: Any = torch.cuda.current_stream(device)
        self._held = arguments  # what is not a tensor in them, too

    def __call__(self, args: Any, kwargs: Any) -> Any:
        stream = torch.cuda.current_stream(self._device)
        if stream != self._stream:
            # Arguments and results lie in one place for all streams: the last call may still be reading and writing.
            stream.wait_stream(self._stream)
            self._stream = stream
        plain = not kwargs and all(type(arg) is torch.Tensor for arg in args)
        for mine, given in zip(self._arguments, args if plain else tensors_of((args, kwargs)), strict=True):
            mine.copy_(given)
        self.graph.replay()
        # The next replay overwrites the results; the caller's must stay.
        if self._alone:
            return self._result.clone()
        if self._objects:
            return map_tensors(lambda tensor: tensor.clone(), self._result)
        own: dict[int, Any] = {}
        leaves = [self._own(leaf, own) for leaf in self._results]
        return _pytree.tree_unflatten(leaves, self._form)

    @staticmethod
    def _own(leaf: Any, own: dict[int, Any]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in own:
            own[id(leaf)] = leaf.clone()
        return own[id(leaf)]


class _Weights:
    """Where the parameters and buffers of a program lie now, also those that took the place of others."""

    def __init__(self, subject: Subject) -> None:
        modules = subject.every_module()
        self._parameters = _places([module._parameters for module in modules])
        self._buffers = _places([module._buffers for module in modules])

    def addresses(self) -> list[int]:
        """Of all of them."""
        return [held[name].data_ptr() for held, name in self._parameters + self._buffers]

    def record(self) -> bool:
        """Whether any of them records a graph for a backward pass."""
        return any(held[name].requires_grad for held, name in self._parameters)


def _places(holders: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    return [(held, name) for held in holders for name, tensor in held.items() if tensor is not None]


def _captured(
    subject: Subject, prepare: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the captured call; `prepare` makes what is captured of the original."""
    weights = _Weights(subject)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        graphs: dict[Any, _Graph] = {}
        # One thread at a time writes the arguments, replays, and takes the results.
        alone = threading.RLock()
        work = prepare(original) if prepare is not None else original

        def by_kind(kind: Any, args: Any, kwargs: Any) -> Any:
            # Inside of somebody's capture the launches themselves are wanted.
            records = torch.is_grad_enabled() and weights.record()
            if _making or records or torch.cuda.is_current_stream_capturing():
                return work(*args, **kwargs)
            # Weights that were exchanged lie elsewhere: the graph would go on reading the old ones. And its kernels are
            # those that were chosen for the precision of that time.
            where = [*weights.addresses(), _precision(), _deterministic()]
            with alone:
                found = graphs.get(kind)
                if found is None or found.where != where:
                    found = graphs[kind] = _Graph(work, args, kwargs, subject.device, where)
                return found(args, kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return by_kind(call_key(args, kwargs, False), args, kwargs)

        forward.by_kind = by_kind  # type: ignore[attr-defined]
        return forward

    return make
