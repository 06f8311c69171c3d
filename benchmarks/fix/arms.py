"""Ways to run a model that anybody has, and the time of a plan beside them, in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

__all__ = ["bare_graph", "in_turns"]

_BLOCK_S = 0.02


def bare_graph(model: Any, inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
    """A CUDA graph: inputs are copied in; the result lies where the next replay will write; nothing is asked. None for a
    model that cannot be captured."""
    import torch

    mine = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
    stream = torch.cuda.Stream()
    try:
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(*mine)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(*mine)
    except RuntimeError:
        return None

    def call(*args: Any) -> Any:
        for own, one in zip(mine, args, strict=True):
            if isinstance(own, torch.Tensor):
                own.copy_(one)
        graph.replay()
        return result

    return call


def in_turns(
    model: Any, plan: Any, arms: dict[str, Callable[..., Any]], inputs: tuple[Any, ...], rounds: int
) -> dict[str, list[float]]:
    """Microseconds a call, of blocks of calls in a row, in random order.

    Args:
        model: what the plan is applied to, and taken off again, in each round. arms: other ways to run it, by name.

    Returns:
        By name, `plan` among them: one value a round.
    """
    import torch

    on_device = any(isinstance(one, torch.Tensor) and one.is_cuda for one in inputs)
    wait = torch.cuda.synchronize if on_device else lambda: None

    def block(call: Callable[..., Any], count: int) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(count):
            call(*inputs)
        wait()
        return (time.perf_counter() - began) / count * 1e6

    def timed(arm: str, count: int) -> float:
        if arm != "plan":
            return block(arms[arm], count)
        plan.apply()
        try:
            block(model, 2)
            return block(model, count)
        finally:
            plan.undo()

    every = [*arms, "plan"]
    counts = {arm: max(3, int(_BLOCK_S * 1e6 / timed(arm, 3))) for arm in every}
    times: dict[str, list[float]] = {arm: [] for arm in every}
    chance = random.Random(0)
    for _ in range(rounds):
        chance.shuffle(every)
        for arm in every:
            times[arm].append(timed(arm, counts[arm]))
    return times
