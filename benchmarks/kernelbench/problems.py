"""Problems in KernelBench's form: a Python file with `Model`, `get_inputs` and `get_init_inputs`
(Ouyang et al., "KernelBench: Can LLMs Write Efficient GPU Kernels?", 2025).

The files are not ours and are not shipped. Loading one runs it: give a folder that you trust.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Problem", "fooled_by", "found_in", "loaded", "passes"]

_LEVEL = re.compile(r"level_?(\d+)$")
_NUMBER = re.compile(r"^(\d+)_")
_ASKED = ("Model", "get_inputs", "get_init_inputs")
_TRIALS = 3
_MOST_AT_ONCE = 1 << 26
# The tolerances of the benchmark's own check.
_NEAR = 1e-2


@dataclass(frozen=True)
class Problem:
    """One file.

    Attributes:
        level: of the folder it is in, 0 where that says nothing. number: that its name begins with, 0 likewise.
        path: of the file.
    """

    level: int
    number: int
    path: Path

    @property
    def name(self) -> str:
        """Level and file, without the folder: the same on every machine."""
        return f"{self.level}/{self.path.stem}"


def found_in(folder: Path, levels: tuple[int, ...] = ()) -> list[Problem]:
    """Problems below a folder, by level and number; those of some levels only, if any are named.

    Raises FileNotFoundError where there is none.
    """
    found = [
        Problem(_level(path), int(match[1]), path)
        for path in folder.rglob("*.py")
        if (match := _NUMBER.match(path.name))
        and all(f"{name}" in path.read_text("utf-8", "replace") for name in _ASKED)
    ]
    found = sorted((one for one in found if not levels or one.level in levels), key=lambda one: (one.level, one.number))
    if not found:
        raise FileNotFoundError(
            f"no problem below {folder}: files level*/NUMBER_name.py that define {', '.join(_ASKED)}"
        )
    return found


def _level(path: Path) -> int:
    return next((int(match[1]) for part in reversed(path.parts[:-1]) if (match := _LEVEL.search(part))), 0)


def loaded(problem: Problem, device: str) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    """The model as the problem makes it, and what makes its inputs from a seed."""
    import torch

    module = _module(problem.path)
    torch.manual_seed(0)
    with torch.device(device):  # drawn there: inputs of gigabytes take seconds elsewhere
        model = module.Model(*module.get_init_inputs()).to(device)

    def inputs(seed: int) -> tuple[Any, ...]:
        torch.manual_seed(seed)
        with torch.device(device):
            given = module.get_inputs()
        return tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in given)

    return model, inputs


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fooled_by(model: Any, inputs: Callable[[int], tuple[Any, ...]]) -> list[str]:
    """What passes the benchmark's own check although it computes nothing: zeros, what other inputs give, nothing finite."""
    import torch

    with torch.no_grad():
        results = [_tensors(model(*inputs(seed))) for seed in range(_TRIALS)]
    reasons: list[str] = []
    if any(not torch.isfinite(one).all() for result in results for one in result if one.is_floating_point()):
        reasons.append("results that are not finite")
    if all(passes([torch.zeros_like(one) for one in result], result) for result in results):
        reasons.append("zeros")
    elif all(passes(results[0], result) for result in results[1:]):
        reasons.append("the result of other inputs")
    return reasons


def passes(results: Any, truth: Any) -> bool:
    """The benchmark's own check: the same shapes, and all values within 1e-2, absolute and relative."""
    mine, theirs = _tensors(results), _tensors(truth)
    return len(mine) == len(theirs) and all(map(_near, mine, theirs))


def _near(a: Any, b: Any) -> bool:
    import torch

    if a.shape != b.shape:
        return False
    # Row by row where rows are large: some problems fill the card, and comparing takes several times a tensor.
    pieces = zip(a, b, strict=True) if a.dim() and a.numel() > _MOST_AT_ONCE else [(a, b)]
    return all(torch.allclose(x.double(), y.double(), rtol=_NEAR, atol=_NEAR, equal_nan=True) for x, y in pieces)


def _tensors(result: Any) -> list[Any]:
    return list(_each(result))


def _each(result: Any) -> Iterator[Any]:
    import torch

    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict):
        for one in result.values():
            yield from _each(one)
    elif isinstance(result, list | tuple):
        for one in result:
            yield from _each(one)
