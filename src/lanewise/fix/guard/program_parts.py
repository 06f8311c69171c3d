"""The modules and optimizers that a function uses, and what steps along with these: in its closure, globals, defaults, and
the object it is bound to."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, NamedTuple

from lanewise.errors import UsageError
from lanewise.fix.typed_torch import torch

__all__ = ["Found", "find_parts", "of_library", "refuse_distributed"]


_DEPTH = 4


class Found(NamedTuple):
    """Root modules, optimizers, and their schedules and gradient scalers, in the order in which they were met."""

    modules: list[Any]
    optimizers: list[Any]
    steppers: list[Any]


def find_parts(function: Any) -> Found:
    """What a function reaches by name, functions it calls by name included."""
    found = Found([], [], [])
    _visit(function, found, set(), 0)
    # A module inside another one is not a root.
    inner = {id(child) for root in found.modules for child in root.modules() if child is not root}
    return Found([root for root in found.modules if id(root) not in inner], *found[1:])


def refuse_distributed(found: Found) -> None:
    """Raise UsageError for modules that a distributed wrapper owns: it relies on the forward that we would replace."""
    wrappers = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel")
    for root in found.modules:
        for module in root.modules():
            names = {kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.")}
            if name := next((name for name in wrappers if name in names), ""):
                raise UsageError(
                    f"{type(module).__name__} is wrapped by {name}: optimize the module before it is "
                    "wrapped, and apply the saved plan in every rank"
                )
        for parameter in root.parameters():
            if type(parameter.data).__name__ == "DTensor":
                raise UsageError("the parameters are sharded (DTensor): optimize the module before it is sharded")


def _visit(value: Any, found: Found, seen: set[int], depth: int) -> None:
    if id(value) in seen or depth > _DEPTH:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        found.modules.append(value)
    elif isinstance(value, torch.optim.Optimizer):
        found.optimizers.append(value)
    elif isinstance(value, (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)):
        found.steppers.append(value)
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            _visit(part, found, seen, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            _visit(part, found, seen, depth + 1)
    elif isinstance(value, dict):
        for part in value.values():
            _visit(part, found, seen, depth + 1)
    elif (code := getattr(value, "__code__", None)) is not None:
        _function(value, code, found, seen, depth)
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType) and not _library(value):
        _visit(vars(value), found, seen, depth + 1)


def _function(value: Any, code: Any, found: Found, seen: set[int], depth: int) -> None:
    parts: list[Any] = [getattr(value, "__self__", None), getattr(value, "__wrapped__", None)]
    plain = getattr(value, "__func__", value)
    parts += list(getattr(plain, "__defaults__", None) or ())
    for cell in getattr(plain, "__closure__", None) or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    known = getattr(plain, "__globals__", {})
    # Functions of libraries are not followed: their globals are not the program's.
    parts += [known[name] for name in code.co_names if name in known and not _foreign(known[name])]
    owner = parts[0]
    if (
        owner is not None
        and not isinstance(owner, torch.nn.Module | torch.optim.Optimizer)
        and hasattr(owner, "__dict__")
    ):
        parts.append(vars(owner))
    for part in parts:
        if part is not None:
            _visit(part, found, seen, depth + 1)


def _library(value: Any) -> bool:
    """Whether it is an object of a library's, which holds nothing of the program's."""
    home = type(value).__module__.split(".", 1)[0]
    return not callable(value) and (home in sys.stdlib_module_names or home in {"torch", "numpy"})


def of_library(value: Any) -> bool:
    """Whether a function, a class or an object's class is Python's, torch's or numpy's, and not the program's."""
    home = str(getattr(value, "__module__", None) or type(value).__module__).split(".", 1)[0]
    return home in sys.stdlib_module_names or home in {"torch", "numpy"}


def _foreign(value: Any) -> bool:
    home = str(getattr(value, "__module__", "") or "")
    is_part = isinstance(value, torch.nn.Module | torch.optim.Optimizer)
    return not is_part and callable(value) and home.split(".", 1)[0] in {"torch", "numpy", "builtins"}
