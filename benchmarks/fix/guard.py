"""What the guard of a patched call costs: `python -m benchmarks.fix.guard [-o results.json]`.

The same module with a patch whose fast path does nothing, against calling that directly, in turns: per call, the fastest of
many short repetitions of each, as everything else on the machine only adds to it. Beside that what no guard can leave out,
and for scale the same for `torch.compile` with a backend that does nothing (what its guards cost), the module itself, an
operator of torch's, and a loop in Python.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from lanewise.fix.guard.known_call import comparison
from lanewise.fix.guard.process_state import process_state
from lanewise.fix.patch import Dispatch

_CALLS, _REPEATS = 200, 150
_X = torch.ones(2, 8, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
        "us_per_call": _costs(),
        "us_of_parts": _parts(),
        "us_of_a_call_of_the_module": {name: _of_the_module(make()) for name, make in PROGRAMS.items()},
        "us_of_torch_add": _fastest(lambda: torch.add(_X, _X)),
        "us_of_a_loop_of_100": _fastest(lambda: [None for _ in range(100)]),
    }
    # Afterwards: what the compiler leaves in a process may cost something in every call.
    found["us_per_call_of_torch_compile"] = {name: _of_the_compiler(make()) for name, make in PROGRAMS.items()}
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, size in zip(self.layers, self.sizes, strict=True):
            x = layer(x) / size
        return x * len(self.options["shapes"]) + len(self.skipped)


PROGRAMS: dict[str, Callable[[], nn.Module]] = {
    "linear layer": lambda: nn.Linear(64, 64),
    "encoder of 12 layers": _encoder,
    "own module with lists and a hook": _Own,
}


def _costs() -> dict[str, dict[str, float]]:
    """Microseconds per call, by program and kind of call: all in turns, as others may use the machine for seconds."""
    found: dict[str, dict[str, float]] = {}
    calls: dict[tuple[str, str], _Calls] = {}
    for name, make in PROGRAMS.items():
        frozen, trained = make().eval().requires_grad_(False), make().eval()
        found[name] = {"modules": len(list(frozen.modules())), "parameters": len(list(frozen.parameters()))}
        calls |= {(name, kind): one for kind, one in _kinds(frozen, trained, _X).items()}
    for (name, kind), took in _in_rounds(calls).items():
        found[name][kind] = round(took / (2 if kind in (_TURNS, _OTHERS) else 1), 2)
    return found


def _in_rounds(calls: Mapping[Any, _Calls]) -> dict[Any, float]:
    """Microseconds by which one call of each takes longer than the other: the least of each."""
    best = {key: [math.inf, math.inf] for key in calls}
    for _ in range(_REPEATS):
        for key, (grad, *both) in calls.items():
            with torch.set_grad_enabled(grad):
                best[key] = [
                    min(one, timeit.timeit(call, number=_CALLS)) for one, call in zip(best[key], both, strict=True)
                ]
    return {key: (one - other) / _CALLS * 1e6 for key, (one, other) in best.items()}


_TURNS = "no_grad, two shapes in turns"
_OTHERS = "no_grad, an object with eight tensors, others in every call"
_Calls = tuple[bool, Callable[[], Any], Callable[[], Any]]


def _kinds(frozen: nn.Module, trained: nn.Module, x: torch.Tensor) -> dict[str, _Calls]:
    def call(module: nn.Module, grad: bool, *args: Any, **kwargs: Any) -> _Calls:
        with torch.set_grad_enabled(grad):
            dispatch = _learned(module, (args, kwargs))
        return grad, lambda: dispatch(*args, **kwargs), lambda: _nothing(*args, **kwargs)

    def in_turns(module: nn.Module, one: Any, other: Any) -> _Calls:
        """Two calls, of which each may be of a kind of its own."""
        with torch.no_grad():
            dispatch = _learned(module, ((one,), {}), ((other,), {}))
        return False, lambda: (dispatch(one), dispatch(other)), lambda: (_nothing(one), _nothing(other))

    def more(count: int) -> list[torch.Tensor]:
        return [x.clone() for _ in range(count)]

    return {
        "no_grad": call(frozen, False, x),
        "enable_grad": call(frozen, True, x),
        "enable_grad, parameters that need gradients": call(trained, True, x),
        "enable_grad, three tensors by name": call(trained, True, x=x, mask=x.clone(), position=x.clone()),
        "no_grad, two tensors and a number": call(frozen, False, x, x.clone(), 3),
        "no_grad, a list of four tensors": call(frozen, False, more(4)),
        "no_grad, an object with eight tensors": call(frozen, False, SimpleNamespace(layers=more(8))),
        _OTHERS: in_turns(frozen, SimpleNamespace(layers=more(8)), SimpleNamespace(layers=more(8))),
        _TURNS: in_turns(frozen, x, x[:, :4].clone()),
    }


def _parts() -> dict[str, float]:
    """Microseconds of what no call goes without, each alone: what tensors are, where they lie, the state of the thread."""
    tensors, place = [_X.clone() for _ in range(8)], torch.Tensor.data_ptr
    one, eight = comparison(tensors[:1]), comparison(tensors)
    state: Any = process_state().names["alike"]
    first = tensors[0]
    parts: dict[str, Callable[[], Any]] = {
        "what a tensor is": lambda: one(first),
        "what eight tensors are": lambda: eight(*tensors),
        "where a tensor lies": lambda: place(first),
        "where eight tensors lie": lambda: [*map(place, tensors)],
        "the state of the thread": lambda: state(),
    }
    found = _in_rounds({name: (True, part, lambda: None) for name, part in parts.items()})
    return {name: round(took, 2) for name, took in found.items()}


@torch.no_grad()
def _of_the_module(module: nn.Module) -> float:
    """Microseconds that it takes itself."""
    module.eval().requires_grad_(False)
    return _fastest(lambda: module(_X), 2)


@torch.no_grad()
def _of_the_compiler(module: nn.Module) -> float:
    """Microseconds per call that torch's compiler takes to find out that a call is a known one."""
    torch.compiler.reset()
    module, x = module.eval().requires_grad_(False), _X
    compiled = torch.compile(lambda x: module(x), backend=lambda graph, examples: lambda *given: (given[0],))
    compiled(x)
    return _difference(lambda: compiled(x), lambda: _nothing(x))


def _learned(module: nn.Module, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> Dispatch:
    dispatch = Dispatch(module, _nothing, _nothing)
    dispatch.learning = True
    for args, kwargs in calls:
        dispatch(*args, **kwargs)
    dispatch.learning = False
    return dispatch


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return args


def _difference(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """Microseconds by which a call takes longer than another."""
    times = [[timeit.timeit(call, number=_CALLS) for call in (one, other)] for _ in range(_REPEATS)]
    fastest = [min(each) for each in zip(*times, strict=True)]
    return round((fastest[0] - fastest[1]) / _CALLS * 1e6, 2)


def _fastest(call: Callable[[], Any], calls: int = _CALLS) -> float:
    """Microseconds that a call takes."""
    return round(min(timeit.repeat(call, number=calls, repeat=_REPEATS // 5)) / calls * 1e6, 2)


if __name__ == "__main__":
    main()
