"""Programs in which starting the work takes longer than the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from benchmarks.replay.pairs.base import Pair, Place, Step, frozen
from benchmarks.replay.pairs.models import mlp, training

__all__ = ["PAIRS"]


def _graphed(step: Callable[[], torch.Tensor]) -> Step:
    """The step captured once; each call replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    def replay(_kept: Step = step) -> torch.Tensor:  # what the graph reads must live as long as the graph
        graph.replay()
        return out

    return replay


def _mlp_graph(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model = frozen(mlp(at.n(width), at.n(layers, 3)), at)
    x = at.randn(at.n(batch, 4), at.n(width))
    return _graphed(lambda: model(x)) if fixed else lambda: model(x)


def _transformer_graph(at: Place, fixed: bool, *, width: int, layers: int, batch: int, length: int) -> Step:
    model, tokens, _ = training(at, width=width, layers=layers, batch=batch, length=length)
    model.requires_grad_(False)
    return _graphed(lambda: model(tokens)) if fixed else lambda: model(tokens)


def _training_graph(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model, _, loss = training(at, width=width, layers=layers, batch=batch, length=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=at.cuda)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return _graphed(step) if fixed else step


def _mlp_compiled(at: Place, fixed: bool, *, width: int, layers: int, batch: int) -> Step:
    model = frozen(mlp(at.n(width), at.n(layers, 3)), at)
    x = at.randn(at.n(batch, 4), at.n(width))
    run = torch.compile(model, dynamic=False) if fixed else model
    return lambda: run(x)


def _transformer_compiled(at: Place, fixed: bool, *, width: int, layers: int, batch: int, length: int) -> Step:
    model, tokens, _ = training(at, width=width, layers=layers, batch=batch, length=length)
    model.requires_grad_(False)
    run = torch.compile(model, dynamic=False) if fixed else model
    return lambda: run(tokens)


def _broken(at: Place, fixed: bool, *, width: int, batch: int) -> Step:
    model = frozen(mlp(at.n(width), 6), at)
    x = at.randn(at.n(batch, 4), at.n(width))

    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in model:
            x = torch.sin(layer(x)) * 0.5
            if not fixed:
                torch._dynamo.graph_break()
        return x

    run = torch.compile(forward, dynamic=False)
    return lambda: run(x)


def _too_small_to_compile(at: Place, fixed: bool) -> Step:
    x = at.randn(at.n(256, 4), 64)

    def double(y: torch.Tensor) -> torch.Tensor:
        return y * 2.0

    run = double if fixed else torch.compile(double, dynamic=False)

    def step() -> torch.Tensor:
        y = x
        for _ in range(16):
            y = run(y)
        return y * 2.0**-16

    return step


def _heads_in_a_loop(at: Place, fixed: bool, *, heads: int, layers: int) -> Step:
    """Views of single heads, taken apart and put together again, where one view of all would do."""
    x = at.randn(64, heads * 32)
    weight = at.randn(32, 32) / 6

    def step() -> torch.Tensor:
        y = x
        for _ in range(layers):
            if fixed:
                parts = y.view(64, heads, 32)
            else:
                parts = torch.stack(
                    [y[:, 32 * h : 32 * h + 32].reshape(64, 1, 32).squeeze(1) for h in range(heads)], dim=1
                )
            y = torch.tanh(parts @ weight).reshape(64, heads * 32)
        return y

    return step


_GRAPH = {
    "fix": "the step captured in a CUDA graph",
    "change": "one_launch",
    "codes": ("LAU106", "LAU101"),
    "needs_cuda": True,
    "tolerance": 2e-2,
}
_COMPILE = {
    "fix": "torch.compile",
    "change": "merge pointwise operations, shorten the host",
    "codes": ("LAU101", "LAU102"),
    "compiles": True,
    "tolerance": 3e-2,
}

PAIRS = [
    Pair(
        "graph-mlp",
        partial(_mlp_graph, width=256, layers=8, batch=32),
        **_GRAPH,
        options=("shapes", "stack", "plain", "full"),
    ),
    Pair(
        "graph-transformer",
        partial(_transformer_graph, width=256, layers=4, batch=2, length=64),
        **_GRAPH,
        options=("shapes", "stack"),
    ),
    Pair("graph-transformer_medium", partial(_transformer_graph, width=512, layers=4, batch=16, length=256), **_GRAPH),
    Pair(
        "graph-transformer_large",
        partial(_transformer_graph, width=1024, layers=4, batch=64, length=256),
        **_GRAPH,
        nothing="the device is the bottleneck; at most gaps between kernels go",
    ),
    Pair(
        "graph-training",
        partial(_training_graph, width=128, layers=2, batch=4),
        **_GRAPH | {"tolerance": None},
        active=5,
    ),
    Pair("compile-mlp", partial(_mlp_compiled, width=256, layers=6, batch=32), **_COMPILE),
    Pair("compile-transformer", partial(_transformer_compiled, width=512, layers=2, batch=32, length=256), **_COMPILE),
    Pair(
        "graph_break",
        partial(_broken, width=256, batch=64),
        fix="graph breaks removed from the compiled function",
        change="shorten the host, merge pointwise operations",
        codes=("CMP101",),
        compiles=True,
    ),
    Pair(
        "compiled_too_small",
        _too_small_to_compile,
        fix="a function of one multiplication no longer compiled",
        change="shorten the host",
        codes=("CMP103", "CMP105", "CMP104"),
        compiles=True,
    ),
    Pair(
        "views_per_head",
        partial(_heads_in_a_loop, heads=8, layers=4),
        fix="one view of all heads instead of eight slices and a stack",
        change="remove the views and the copy",
        codes=("LAU105", "LAU103"),
        active=6,
    ),
]
