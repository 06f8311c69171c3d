"""A CUDA graph of the program, as it is or with faster parts in it: the launches of a call become one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.candidates.compiled import compiler
from lanewise.fix.candidates.predictions import graph_replays
from lanewise.fix.guard import call_kind
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors, tensors_of
from lanewise.record.torched import torch_part

__all__ = ["candidates"]

torch: Any = torch_part()
_pytree: Any = torch_part("torch.utils._pytree")

_WARM_UPS = 3
_ANSWERS = ("LAU101", "LAU103", "LAU106", "LAU110")
_COMPILED = {"compile-cuda-graph": "default", "compile-max-autotune-cuda-graph": "max-autotune-no-cudagraphs"}


def candidates(subject: Subject, kernels: Sequence[Candidate]) -> list[Candidate]:
    """The program as it is, with each of the fused kernels in it: for inference on a CUDA device.

    A kernel whose launch costs the host more than it saves on the device pays inside of a graph. A capture that fails is
    a failed candidate.
    """
    if not _capturable(subject):
        return []
    plain = Candidate(
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
    return [plain, *(_with_kernel(kernel) for kernel in kernels)]


def of_compiled(subject: Subject, modes: Sequence[str]) -> list[Candidate]:
    """A CUDA graph of what the compiler makes of the program, for those of its modes that are tried."""
    if not _capturable(subject):
        return []
    return [
        Candidate(
            name,
            "compile",
            "whole",
            f"a CUDA graph of the program compiled in mode {mode}: fused kernels, and one launch per call",
            lambda subject, mode=mode: ForwardPatch(subject.entry, _captured(subject, compiler(subject, mode))),
            predictions=(graph_replays(),),
            compiles=True,
            engine=True,
        )
        for name, mode in _COMPILED.items()
        if mode in modes
    ]


def _capturable(subject: Subject) -> bool:
    return subject.cuda and subject.kind == "inference" and not subject.random


def _with_kernel(kernel: Candidate) -> Candidate:
    def build(subject: Subject) -> Several:
        return Several([kernel.build(subject), ForwardPatch(subject.entry, _captured(subject))])

    return Candidate(
        f"cuda-graph+{kernel.name}",
        "graph",
        kernel.region,
        f"a CUDA graph of the program with {kernel.what}",
        build,
        predictions=(graph_replays(), *kernel.predictions),
        engine=True,
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


class _Graph:
    """One captured call: its static arguments and results, and the addresses that it relies on."""

    def __init__(
        self, original: Callable[..., Any], args: Any, kwargs: Any, device: Any, where: tuple[int, ...]
    ) -> None:
        self.where = where
        arguments = map_tensors(lambda tensor: tensor.detach().clone(), (args, kwargs))
        self._arguments = tensors_of(arguments)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with _made():
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    original(*arguments[0], **arguments[1])
            torch.cuda.current_stream(device).wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                results = original(*arguments[0], **arguments[1])
        self._results, self._form = _pytree.tree_flatten(results)
        self._held = arguments  # what is not a tensor in them, too

    def __call__(self, args: Any, kwargs: Any) -> Any:
        for mine, given in zip(self._arguments, tensors_of((args, kwargs)), strict=True):
            mine.copy_(given)
        self.graph.replay()
        # The next replay overwrites the results; the caller's must stay.
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


def _captured(
    subject: Subject, prepare: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the captured call; `prepare` makes what is captured of the original."""
    held = [*subject.parameters(), *subject.buffers()]
    address = torch.Tensor.data_ptr

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        graphs: dict[Any, _Graph] = {}
        work = prepare(original) if prepare is not None else original

        def forward(*args: Any, **kwargs: Any) -> Any:
            # Inside of somebody's capture the launches themselves are wanted.
            records = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in held)
            if _making or records or torch.cuda.is_current_stream_capturing():
                return work(*args, **kwargs)
            kind = call_kind((args, kwargs), False)
            where = tuple(map(address, held))
            found = graphs.get(kind)
            if found is None or found.where != where:
                # Weights that were exchanged lie elsewhere: the graph would go on reading the old ones.
                found = graphs[kind] = _Graph(work, args, kwargs, subject.device, where)
            return found(args, kwargs)

        return forward

    return make
