"""What is asked for: how many steps, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lanewise.errors import UsageError

__all__ = ["MOST_STEPS", "Ordered", "read_order"]

MOST_STEPS = 1000
_YES = {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """One recording that somebody has asked for.

    Attributes:
        steps: how many. stacks: Python frames and modules as well. memory: allocator events as well.
    """

    steps: int = 10
    stacks: bool = False
    memory: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise UsageError(f"steps is a whole number from 1 to {MOST_STEPS:,}")


def read_order(words: Mapping[str, str], usual: Ordered) -> Ordered:
    """`steps=20`, `stacks=yes`, `memory=yes` on top of what is usual. UsageError for anything else."""
    order = usual
    for name, value in words.items():
        if name == "steps" and value.isascii() and value.isdigit():
            order = replace(order, steps=int(value))
        elif name in ("stacks", "memory") and value.lower() in _YES:
            order = replace(order, **{name: _YES[value.lower()]})
        else:
            raise UsageError(
                f"{name}={value} is nothing that can be asked for; there are steps=20, stacks=yes and memory=yes"
            )
    return order
