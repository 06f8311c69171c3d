"""Fixes of the program itself that can be made from outside: gradients that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.predictions import no_graph_recorded
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch

__all__ = ["candidates"]


def candidates(subject: Subject) -> list[Candidate]:
    """Inference with gradients on records a graph that is thrown away."""
    if subject.kind != "inference" or not torch.is_grad_enabled():
        return []
    if not any(parameter.requires_grad for parameter in subject.parameters()):
        return []
    return [
        Candidate(
            "no-grad",
            "program",
            "whole",
            "run without recording a graph for a backward pass that inference never makes",
            lambda subject: ForwardPatch(subject.entry, _without_graph),
            refused_unless_allowed="its outputs carry no graph: a backward pass through them is no longer possible",
            drops_graph=True,
            predictions=(no_graph_recorded(),),
            answers=("OPT104",),
        )
    ]


def _without_graph(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return original(*args, **kwargs)

    return forward
