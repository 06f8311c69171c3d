"""What the guard of a patched call costs: `python -m benchmarks.fix.guard [-o results.json]`.

The same module with a patch whose fast path does nothing, against calling that directly: per call, the fastest of many
repetitions, as everything else on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import json
import platform
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lanewise.fix.patch import Dispatch

_CALLS, _REPEATS = 1000, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "us_per_call": {name: _cost(make()) for name, make in PROGRAMS.items()},
    }
    text = json.dumps(found, indent=2) + "\n"
    asked.output.write_text(text) if asked.output else print(text, end="")


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


PROGRAMS: dict[str, Callable[[], nn.Module]] = {
    "linear layer": lambda: nn.Linear(4, 4),
    "encoder of 12 layers": _encoder,
}


def _cost(module: nn.Module) -> dict[str, float]:
    module.eval().requires_grad_(False)
    x = torch.ones(2, 8, 64)

    def nothing(x: Any) -> Any:
        return x

    dispatch = Dispatch(module, nothing, nothing)
    found: dict[str, float] = {"modules": len(list(module.modules())), "parameters": len(list(module.parameters()))}
    for name, mode in (("no_grad", torch.no_grad), ("grad", torch.enable_grad)):
        with mode():
            dispatch.learning = True
            dispatch(x)
            dispatch.learning = False
            found[name] = round(_fastest(lambda: dispatch(x)) - _fastest(lambda: nothing(x)), 2)
    return found


def _fastest(call: Callable[[], Any]) -> float:
    return min(timeit.repeat(call, number=_CALLS, repeat=_REPEATS)) / _CALLS * 1e6


if __name__ == "__main__":
    main()
