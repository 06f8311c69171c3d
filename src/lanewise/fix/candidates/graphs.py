"""A CUDA graph of the program as it is: the launches of a call become one, nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.predictions import fewer_launches, graph_replays
from lanewise.fix.guard import call_kind
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors, tensors_of
from lanewise.record.torched import torch_part

__all__ = ["candidates"]

torch: Any = torch_part()

_WARM_UPS = 3


def candidates(subject: Subject) -> list[Candidate]:
    """For inference on a CUDA device; a capture that fails is a failed candidate."""
    if not subject.cuda or subject.kind != "inference" or subject.random:
        return []
    return [
        Candidate(
            "cuda-graph",
            "graph",
            "whole",
            "a CUDA graph of the program as it is: one launch per call; inputs and results are copied",
            lambda subject: ForwardPatch(subject.entry, _captured(subject)),
            predictions=(graph_replays(), fewer_launches()),
            answers=("LAU101", "LAU103", "LAU106", "LAU110"),
            alternative=True,
        )
    ]


class _Graph:
    """One captured call: its static arguments and results, and the addresses that it relies on."""

    def __init__(self, original: Callable[..., Any], args: Any, kwargs: Any, device: Any) -> None:
        self.arguments = map_tensors(lambda tensor: tensor.detach().clone(), (args, kwargs))
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                original(*self.arguments[0], **self.arguments[1])
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.results = original(*self.arguments[0], **self.arguments[1])

    def __call__(self, args: Any, kwargs: Any) -> Any:
        for mine, given in zip(tensors_of(self.arguments), tensors_of((args, kwargs)), strict=True):
            mine.copy_(given)
        self.graph.replay()
        # The next replay overwrites the results; the caller's must stay.
        return map_tensors(lambda tensor: tensor.clone(), self.results)


def _captured(subject: Subject) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    held = [*subject.parameters(), *subject.buffers()]

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        graphs: dict[Any, tuple[_Graph, list[int]]] = {}

        def forward(*args: Any, **kwargs: Any) -> Any:
            # Inside of somebody's capture the launches themselves are wanted.
            records = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in held)
            if records or torch.cuda.is_current_stream_capturing():
                return original(*args, **kwargs)
            kind = call_kind((args, kwargs), False)
            where = [tensor.data_ptr() for tensor in held]
            found = graphs.get(kind)
            if found is None or found[1] != where:
                # Weights that were exchanged lie elsewhere: the graph would go on reading the old ones.
                found = graphs[kind] = (_Graph(original, args, kwargs, subject.device), where)
            return found[0](args, kwargs)

        return forward

    return make
