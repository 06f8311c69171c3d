"""A capture that fails leaves random numbers, the current stream and memory as they were."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.capturing import capture, put_right
from lanewise.fix.optimize import optimize

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class Waits(nn.Module):
    """Waits for the device, which no capture survives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (2.0 if x.sum().item() > 0 else 3.0)


class HalfDone:
    """Somebody else's capture, a compiler's, say, that fails."""

    def enable(self) -> None:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            torch.rand(8, device="cuda").sum().item()

    def disable(self) -> None: ...


def draws_as_before(graph: Any = None, result: Any = None) -> None:
    """Random numbers come by the seed, those of a graph that was captured before included."""
    torch.manual_seed(3)
    first = torch.rand(8, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(8, device="cuda"))
    if graph is None:
        return
    seen: list[torch.Tensor] = []
    for _ in range(2):
        torch.manual_seed(5)
        graph.replay()
        graph.replay()
        seen.append(result.clone())
    assert torch.equal(seen[0], seen[1])
    torch.manual_seed(6)
    graph.replay()
    assert not torch.equal(result, seen[0])


def test_a_capture_that_fails_leaves_random_numbers_the_stream_and_memory_as_they_were() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    theirs, drawn = capture(lambda: torch.rand(8, device=device), device, torch.cuda.Stream())
    large = torch.randn(1 << 26, device=device)

    def waits() -> torch.Tensor:
        held = large * 2
        return held * held.sum().item()

    stream = torch.cuda.current_stream()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            capture(waits, device, torch.cuda.Stream())
        assert torch.cuda.current_stream() == stream
        draws_as_before(theirs, drawn)
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < before + (1 << 26), "what a failed capture has set aside is given back"


def test_an_error_of_the_program_inside_of_a_capture_is_what_is_raised() -> None:
    device = torch.device("cuda", torch.cuda.current_device())

    def fails() -> None:
        torch.rand(8, device=device)
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            capture(fails, device, torch.cuda.Stream())
        draws_as_before()


def test_random_numbers_can_be_drawn_after_candidates_whose_captures_fail() -> None:
    module = Waits().cuda().eval().requires_grad_(False)
    x = torch.randn(32, 64, device="cuda")

    planted = Candidate("half", "graph", "whole", "a capture that fails", lambda subject: HalfDone())
    stream = torch.cuda.current_stream()
    for names in (["cuda-graph"], ["half"]):
        plan = optimize(module, x, budget="20s", only=names, trace=False, extra=[planted])
        assert plan.report.attempts[-1].outcome == "failed", plan.report.attempts[-1]
        assert torch.cuda.current_stream() == stream
        draws_as_before()


def test_what_is_interrupted_in_a_capture_of_the_compilers_is_put_right() -> None:
    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError), put_right(torch.device("cuda")):
        HalfDone().enable()
    assert torch.cuda.current_stream() == stream
    draws_as_before()
