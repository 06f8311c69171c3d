"""How soon `watch` names a place of a running program that begins to do more, and how often it does so for nothing.

    python -m benchmarks.slower_live [--runs N] [--sizes SIZE ...] [--healthy STEPS [--programs NAME ...]]
        [--device cuda] [--out FILE]

A training step of a small transformer with three more layers: forty cheap operators (bound by the host), twenty matrix
products (what a device would do) and a loop in Python. Each run is a process of its own: 1,100 healthy steps, then one of
the layers does 5, 10 or 20 % more, until it is named or for 400 steps; layers and sizes take turns. Then so many steps
of programs to which nothing happens; of the transformer also how far the three layers are spread: of one block, and of
the median of a hundred steps, with the middle of the program taken out and with their own exponent of it
(`machine_speed`) taken out. The machine is as busy as it is: its load and what the program waited for a processor stand
beside each run.

Steps are looked at four at a time, whatever that costs: it is the statistic that is asked about. A right alert names
the layer, what is inside of it, or its backward pass. What is said before a change, or of another place, is false.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import PROGRAMS, RATE, Model
from benchmarks.fresh import call
from benchmarks.machine import described
from torch import nn

import lanewise
from lanewise.capture.context import native_build
from lanewise.tree.slowing import lookout
from lanewise.tree.slowing.changes.machine_speed import MachineSpeed
from lanewise.tree.slowing.changes.slowdowns import Block, Grown, Slowdowns
from lanewise.tree.slowing.looks.growing_forest import GrowingForest, padded
from lanewise.tree.slowing.slowdown import Slowdown

HEALTHY, CHANGED = 1_100, 400
SIZES, PLACES = (0.05, 0.10, 0.20), ("tail", "product", "loop")
BACKWARD = {"tail": "tanh"}
"""What is in the name of a layer's backward functions; the others have none."""
HUNDRED_STEPS = 25
"""Blocks of four."""
_SECONDS = 240


class Tail(nn.Module):
    """Cheap operators, one after the other."""

    work = 40

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As often as there is work."""
        for _ in range(self.work):
            x = torch.tanh(x)
        return x


class Product(nn.Module):
    """Matrix products, as many as there is work."""

    work = 20
    x: torch.Tensor
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.randn(8, 192))
        self.register_buffer("weight", torch.randn(192, 192))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in."""
        for _ in range(self.work):
            _ = self.x @ self.weight
        return x


class Loop(nn.Module):
    """Python between two operators."""

    work = 8000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in."""
        x = x + 1
        for _ in range(self.work):
            pass
        return x - 1


class Net(nn.Module):
    """A transformer of one layer, and the layers that can change."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.tail, self.product, self.loop = Model(1, 64, 128), Tail(), Product(), Loop()

    def forward(self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        return self.loop(self.product(self.tail(self.model(tokens, cos, sin))))


def main() -> None:
    """Measure, and write the file after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=27)
    parser.add_argument("--sizes", type=float, nargs="*", default=list(SIZES))
    parser.add_argument("--healthy", type=int, default=0, metavar="STEPS", help="of each program")
    parser.add_argument("--programs", nargs="*", default=["mlp", "net", "resmlp"], choices=["net", *PROGRAMS])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/slower-live-cpu.json"))
    given = parser.parse_args()
    call(_built, seconds=600)
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    result["machine"] = call(described, seconds=120)
    kinds: list[tuple[float, str]] = list(product(given.sizes, PLACES))
    for run in range(given.runs):
        size, place = kinds[run % len(kinds)]
        answer = call(partial(planted, place, size, given.device), seconds=_SECONDS)
        print(json.dumps(answer), flush=True)
        result.setdefault("planted", []).append(answer)
        result["sums"] = {f"{size:.0%}": _summed(result["planted"], size) for size in given.sizes}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    for name in given.programs if given.healthy else ():
        answer = call(partial(healthy, name, given.healthy, given.device), seconds=3_600)
        print(json.dumps(answer), flush=True)
        result.setdefault("healthy", []).append(answer)
        given.out.write_text(json.dumps(result, indent=1) + "\n")


def _built() -> dict[str, Any]:
    native_build.load()
    return {}


def _summed(runs: list[dict[str, Any]], size: float) -> dict[str, Any]:
    ended = [one for one in runs if one.get("size") == size]
    delays = [one["steps_until_told"] for one in ended if one["steps_until_told"] is not None]
    return {
        "runs": len(ended),
        "within_100_steps": sum(delay <= 100 for delay in delays),
        "within_400_steps": len(delays),
        "median_delay": median(delays) if delays else None,
        "false_alerts": sum(len(one["false_alerts"]) for one in ended),
    }


def is_of_layer(path: Sequence[str], place: str) -> bool:
    """Whether a place is the layer, inside of it, or its backward pass."""
    return place in path or (place in BACKWARD and any(BACKWARD[place] in name.lower() for name in path))


def alert_text(one: Slowdown) -> str:
    """What became slower, by how much, and since when."""
    more = f"{one.after / one.before - 1:+.0%}" if one.before else "new"
    return f"{' > '.join(one.path)}: {more} since step {one.since}, told at {one.at}"


def planted(place: str, size: float, device: str) -> dict[str, Any]:
    """One run in which a layer begins to do more."""
    net = _net(device)
    layer = getattr(net, place)
    step = _step(net, device)

    def change(at: int, told: list[Slowdown]) -> bool:
        if at == HEALTHY:
            layer.work = round(layer.work * (1 + size))
        return at < HEALTHY + CHANGED and not any(map(is_right, told))

    def is_right(one: Slowdown) -> bool:
        return one.at > HEALTHY and is_of_layer(one.path, place)

    found = _followed(step, change)
    right = [one for one in found["told"] if is_right(one)]
    wrong = [one for one in found["told"] if not is_right(one)]
    return {
        "named": " > ".join(right[0].path[-2:]) if right else None,
        "place": place,
        "size": size,
        "steps_until_told": right[0].at - HEALTHY if right else None,
        "false_alerts": [alert_text(one) for one in wrong],
        **found["machine"],
    }


def healthy(name: str, steps: int, device: str) -> dict[str, Any]:
    """One program to which nothing happens."""
    blocks: list[np.ndarray] = []
    if name == "net":
        lookout.Slowdowns = partial(_Kept, blocks)  # type: ignore[misc,assignment]
    step = _step(_net(device), device) if name == "net" else PROGRAMS[name](device)
    found = _followed(step, lambda at, _: at < steps)
    return {
        "program": name,
        "healthy_steps": steps,
        "false_alerts": [alert_text(one) for one in found["told"]],
        "spread": {place: _spread(blocks, found["follows"], place) for place in PLACES} if blocks else {},
        **found["machine"],
    }


class _Kept(Slowdowns):
    """Keeps what came in, of the host's time."""

    def __init__(self, kept: list[np.ndarray], forest: GrowingForest) -> None:
        super().__init__(forest)
        self._kept = kept

    def block(self, sums: Block, calls: np.ndarray) -> list[Grown]:
        self._kept.append(sums["host"])
        return super().block(sums, calls)


def _spread(blocks: list[np.ndarray], follows: Any, place: str) -> dict[str, Any]:
    """How far a layer's time is spread where nothing changes: of blocks, and of medians of a hundred steps."""
    forest, contexts = follows._forest, follows._source.contexts()
    own = np.stack([padded(block, len(forest)) for block in blocks])
    level = np.median(own, axis=0)
    inside = np.zeros(len(forest), dtype=bool)
    for node in (at for at in range(len(forest)) if follows._text(contexts, at)[0] == place):
        inside |= forest.inside(node)
    steady = np.flatnonzero((level > 0.001 * level.sum()) & ~inside)
    speed = MachineSpeed(level[steady], np.sqrt(level[steady]), own[:, steady]).first
    inner = own[:, inside].sum(axis=1)
    takes = np.log(np.maximum(inner, 1.0) / np.median(inner))
    exponent = float(np.polyfit(speed, takes, 1)[0])
    hundreds = len(takes) // HUNDRED_STEPS

    def of(values: np.ndarray) -> dict[str, float]:
        medians = np.median(values[: hundreds * HUNDRED_STEPS].reshape(hundreds, -1), axis=1)
        return {"block": round(float(values.std()), 4), "hundred_steps": round(float(medians.std()), 4)}

    return {
        "exponent": round(exponent, 2),
        "as_it_is": of(takes),
        "middle_taken_out": of(takes - speed),
        "own_exponent_taken_out": of(takes - exponent * speed),
        "machine": of(speed),
        "hundreds": hundreds,
    }


def _net(device: str) -> Net:
    torch.manual_seed(0)
    return Net().to(device)


def _step(net: Net, device: str) -> Callable[[], None]:
    optimizer = torch.optim.SGD(net.model.parameters(), lr=RATE, foreach=False)
    tokens = torch.randint(0, 128, (1, 8), device=device)
    cos, sin = torch.randn(8, 16, device=device), torch.randn(8, 16, device=device)

    def step() -> None:
        optimizer.zero_grad()
        scores = net(tokens, cos, sin)
        nn.functional.cross_entropy(scores.view(-1, 128), tokens.view(-1)).backward()
        optimizer.step()

    return step


def _followed(step: Callable[[], None], more: Callable[[int, list[Slowdown]], bool]) -> dict[str, Any]:
    """What is told of a program that goes on as long as `more`, which gets the number of each step and what was told."""
    lookout._COST = 1e9  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    for _ in range(10):
        step()
    load = [os.getloadavg()[0]]
    waited = _waited()
    begin, at = time.monotonic(), 0
    told: list[Slowdown] = []
    with lanewise.watch(way="native", on_slowdown=told.append, log=lambda _: None) as watcher:
        while more(at, told):
            step()
            at += 1
    seconds = time.monotonic() - begin
    load.append(os.getloadavg()[0])
    follows: Any = watcher._lookout
    return {
        "told": told,
        "follows": follows,
        "machine": {
            "step_ms": round(1e3 * seconds / at, 2),
            "load": [round(one, 1) for one in load],
            "waited_for_a_processor": round((_waited() - waited) / 1e9 / seconds, 3),
            "blocks": follows.blocks,
            "crowded_blocks": follows.crowded,
        },
    }


def _waited() -> int:
    """ns of this thread so far."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


if __name__ == "__main__":
    main()
