"""How soon `watch` names a place that became slower, and how often it does so for nothing.

    python -m benchmarks.slowdowns [--runs N] [--planted N] [--noises NAME ...] [--live STEPS] [--device cuda] [--out FILE]

Simulated programs of 50 places, each with its own kind of noise: `--runs` times 100,000 healthy steps, and `--planted`
times 10 % more of a place that holds 5 % of the step. With `--live`, a real training step as well: so many healthy steps,
then as many as it takes in which one module does 10 % more. A busy processor says nothing: the share of blocks that were
left out for that is in the result.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import described
from tests.tree.slowing.simulated import NOISES, Program, followed

from lanewise.tree.slowing import lookout

STEPS, BEGIN, PLACE = 100_000, 800, 7


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--noises", nargs="*", default=list(NOISES), choices=list(NOISES))
    parser.add_argument("--live", type=int, default=0, metavar="STEPS")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/slowdowns-cpu.json"))
    given = parser.parse_args()
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    result["machine"] = described()
    if given.runs or given.planted:
        found = {name: simulated(name, given.runs, given.planted) for name in given.noises}
        result["simulated"] = result.get("simulated", {}) | found
    if given.live:
        result["live"] = [*result.get("live", []), live(given.device, given.live)]
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def simulated(noise: str, runs: int, planted: int) -> dict[str, Any]:
    """Alerts in healthy steps, and the delay of right ones."""
    # A simulated step takes no time, so that looking would seem to take all of it; and who else has the processor while
    # it is simulated has nothing to do with it.
    lookout._COST = lookout.CROWDED = 1e9  # type: ignore[attr-defined]
    random = np.random.default_rng(2026)
    begin = time.monotonic()
    false = sum(len(followed(Program(), _times(random, noise, STEPS))) for _ in range(runs))
    delays: list[int] = []
    missed = elsewhere = 0
    for _ in range(planted):
        times = _times(random, noise, BEGIN + 400)
        times[BEGIN:, PLACE] *= 1.1
        found = followed(Program(), times)
        right = [one for one in found if one.path[-2:] == ("layers.1", "aten::op2")]
        elsewhere += len(found) - len(right)
        delays += [one.at - BEGIN for one in right[:1]]
        missed += not right
    answer = {
        "healthy_steps": runs * STEPS,
        "false_alerts": false,
        "planted": planted,
        "within_100_steps": sum(delay <= 100 for delay in delays),
        "median_delay": float(np.median(delays)) if delays else None,
        "longest_delay": max(delays, default=None),
        "not_within_400_steps": missed,
        "named_elsewhere": elsewhere,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(noise, json.dumps(answer), flush=True)
    return answer


def _times(random: np.random.Generator, noise: str, steps: int) -> np.ndarray:
    share = random.dirichlet(np.full(50, 2.0)) * 1e7
    share[PLACE] = 5e5
    return np.maximum(NOISES[noise](random, steps, 50), 0.1) * share


def live(device: str, steps: int) -> dict[str, Any]:
    """A small transformer and a tail of cheap operators, which becomes 10 % longer."""
    import torch
    from benchmarks.context.programs import Model
    from torch import nn

    import lanewise

    class Tail(nn.Module):
        times = 40

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.times):
                x = torch.tanh(x)
            return x

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, tail = Model(1, 64, 128).to(device), Tail()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.randint(0, 128, (1, 8), device=device)
    cos, sin = torch.randn(8, 16, device=device), torch.randn(8, 16, device=device)

    def step() -> None:
        optimizer.zero_grad()
        scores = tail(model(tokens, cos, sin))
        nn.functional.cross_entropy(scores.view(-1, 128), tokens.view(-1)).backward()
        optimizer.step()

    told: list[Any] = []
    watcher = lanewise.watch(way="native", on_slowdown=told.append, log=print)
    with watcher:
        begin = time.monotonic()
        for _ in range(steps):
            step()
        seconds = time.monotonic() - begin
        false = len(told)
        tail.times = 44
        more = 0
        while len(told) == false and more < 2_000:
            step()
            more += 1
    follows: Any = watcher._lookout
    answer = {
        "device": device,
        "healthy_steps": steps,
        "step_ms": round(1e3 * seconds / steps, 3),
        "false_alerts": [" > ".join(one.path) for one in told[:false]],
        "steps_until_told": more if len(told) > false else None,
        "named": " > ".join(told[false].path) if len(told) > false else None,
        "block_steps": follows._length,
        "blocks": follows.blocks,
        "crowded_blocks": follows.crowded,
    }
    print(json.dumps(answer), flush=True)
    return answer


if __name__ == "__main__":
    main()
