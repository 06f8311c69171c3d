"""Configurations measured on a card, kept per card, driver-independent, and per torch and Triton version.

A kernel asks `pick(kernel, key, default)`: the configuration measured for that key on this card if there is one, the
default otherwise. Nothing is ever tuned behind the user's back inside a program: tuning is what `python -m
benchmarks.kernels OUT.json --keep` does, and its results live in `<cache>/kernels/tuning.json`, keyed by card, torch,
Triton and the hash of the kernels' sources, so that an upgrade or an edit makes them void.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import triton

from lanewise.cache_folder import cache_folder
from lanewise.kernels.dispatch.launcher import Kernel

__all__ = ["cache_path", "card_key", "forget", "override", "pick", "record", "source_hash"]

T = TypeVar("T")

_CHOSEN: dict[tuple[str, Hashable], Any] = {}
_table_read: dict[str, dict[str, Any]] | None = None

generation = 0
"""Grows whenever a choice changes, so that what was prepared with the old one is prepared again."""


@cache
def card_key(index: int = 0) -> str:
    """Card and software that a measurement holds for."""
    name = "cpu"
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(index)
        name = f"{properties.name} sm{properties.major}{properties.minor} {properties.multi_processor_count}SM"
    return f"{name} | torch {torch.__version__} | triton {triton.__version__}"


@cache
def source_hash() -> str:
    """Hash of the sources of this package: an edited kernel has not been measured."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_path() -> Path:
    return cache_folder() / "kernels" / "tuning.json"


def _table() -> dict[str, dict[str, Any]]:
    global _table_read
    if _table_read is None:
        try:
            _table_read = json.loads(cache_path().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            _table_read = {}
    return _table_read if _table_read is not None else {}


def _slot() -> str:
    return f"{card_key()} | source {source_hash()}"


def pick(kernel: str, key: Hashable, default: T) -> T:
    """The configuration for `key`: one set by `override`, else measured here, else `default`.

    A configuration is a frozen dataclass; a measured one replaces the fields of the default.
    """
    at = (kernel, key)
    if at in _CHOSEN:
        return _CHOSEN[at]
    measured = _table().get(_slot(), {}).get(f"{kernel} {key}")
    chosen: Any = default
    if isinstance(measured, dict) and dataclasses.is_dataclass(default):
        try:
            chosen = dataclasses.replace(default, **measured)  # pyright: ignore[reportArgumentType]
        except TypeError:
            chosen = default
    _CHOSEN[at] = chosen
    return chosen


def override(kernel: str, key: Hashable, chosen: Any) -> None:
    """Use `chosen` for `key` in this process (a tuner trying candidates)."""
    global generation
    _CHOSEN[kernel, key] = chosen
    generation += 1
    for instance in Kernel.instances:
        instance.forget()


def record(kernel: str, key: Hashable, chosen: Any) -> None:
    """Keep `chosen` for `key` on this card, for later processes."""
    override(kernel, key, chosen)
    table = _table()
    table.setdefault(_slot(), {})[f"{kernel} {key}"] = dataclasses.asdict(chosen)
    path = cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(json.dumps(table, indent=1, sort_keys=True), encoding="utf-8")
    partial.replace(path)


def forget() -> None:
    """Read the cache file again; drop what was overridden."""
    global _table_read, generation
    _table_read = None
    _CHOSEN.clear()
    generation += 1
    for instance in Kernel.instances:
        instance.forget()
