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
from types import SimpleNamespace
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
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "us_per_call": {name: _cost(make()) for name, make in PROGRAMS.items()},
    }
    text = json.dumps(found, indent=2) + "\n"
    asked.output.write_text(text) if asked.output else print(text, end="")


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


class _Own(nn.Module):
    """A module of one's own, with lists among its attributes and a hook that closes over one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
        self.sizes = [64] * 8
        self.options: dict[str, Any] = {"shapes": [[8, 64], [64]]}
        self.skipped = {1, 2}
        scales = [1.0]

        def scaled(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
            return result * scales[0]

        self.layers[0].register_forward_hook(scaled)


PROGRAMS: dict[str, Callable[[], nn.Module]] = {
    "linear layer": lambda: nn.Linear(4, 4),
    "encoder of 12 layers": _encoder,
    "own module with lists and a hook": _Own,
}


def _cost(module: nn.Module) -> dict[str, float]:
    module.eval().requires_grad_(False)
    found: dict[str, float] = {"modules": len(list(module.modules())), "parameters": len(list(module.parameters()))}
    x = torch.ones(2, 8, 64)
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            found[mode.__name__] = _added(module, x)
    module.requires_grad_(True)
    found["enable_grad, parameters that need gradients"] = _added(module, x)
    found["enable_grad, three tensors by name"] = _added(module, x=x, mask=x.clone(), position=x.clone())
    module.requires_grad_(False)
    with torch.no_grad():
        found["no_grad, two tensors and a number"] = _added(module, x, x.clone(), 3)
        found["no_grad, a list of four tensors"] = _added(module, [x.clone() for _ in range(4)])
        found["no_grad, an object with eight tensors"] = _added(
            module, SimpleNamespace(layers=[x.clone() for _ in range(8)])
        )
        found["no_grad, two shapes in turns"] = _in_turns(module, x, x[:, :4].clone())
    return found


def _added(module: nn.Module, *args: Any, **kwargs: Any) -> float:
    """Microseconds per call with these arguments."""
    dispatch = _learned(module, (args, kwargs))
    added = _fastest(lambda: dispatch(*args, **kwargs)) - _fastest(lambda: _nothing(*args, **kwargs))
    assert not dispatch.fallbacks
    return round(added, 2)


def _in_turns(module: nn.Module, one: Any, other: Any) -> float:
    """Microseconds per call if no call is like the one before."""
    dispatch = _learned(module, ((one,), {}), ((other,), {}))
    added = _fastest(lambda: (dispatch(one), dispatch(other))) - _fastest(lambda: (_nothing(one), _nothing(other)))
    return round(added / 2, 2)


def _learned(module: nn.Module, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> Dispatch:
    dispatch = Dispatch(module, _nothing, _nothing)
    dispatch.learning = True
    for args, kwargs in calls:
        dispatch(*args, **kwargs)
    dispatch.learning = False
    return dispatch


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return args


def _fastest(call: Callable[[], Any]) -> float:
    return min(timeit.repeat(call, number=_CALLS, repeat=_REPEATS)) / _CALLS * 1e6


if __name__ == "__main__":
    main()
