"""What a pair is: one program, and the same program with one fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import nn

__all__ = ["Build", "Pair", "Place", "Step", "frozen", "linears"]

# A step returns what it computed, by which the two programs of a pair are compared.
Step: TypeAlias = Callable[[], torch.Tensor]
Build: TypeAlias = Callable[["Place", bool], Step]

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Place:
    """Where a program runs, and how large it is made there.

    Attributes:
        small: sizes for a trial on the CPU.
    """

    device: torch.device
    small: bool = False

    def n(self, full: int, tiny: int = 16) -> int:
        """A size: `full`, or `tiny` in a trial."""
        return tiny if self.small else full

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Until the device has finished."""
        if self.cuda:
            torch.cuda.synchronize()

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, device=self.device).to(dtype)


@dataclass(frozen=True)
class Pair:
    """Two programs that differ in one fix.

    Attributes:
        build: makes the step of the slow program, or of the fixed one. Seeds are the caller's.
        fix: what was changed, in words. change: the edits of the step's graph that stand for it. codes: of the rules
            that should find it, the likeliest first; empty where there is none.
        nothing: why the fix is expected to give nothing; None where it should give something.
        setting: sets process-wide switches as the slow (False) or the fixed (True) program wants them.
        tolerance: of the relative difference between what the two compute; None where they draw different numbers.
        active: steps to record. options: sets of profiler options to record the slow program with, of `record.OPTIONS`.
    """

    name: str
    build: Build
    fix: str
    change: str
    codes: tuple[str, ...] = ()
    nothing: str | None = None
    setting: Callable[[bool], None] | None = None
    tolerance: float | None = 1e-3
    active: int = 8
    options: tuple[str, ...] = ("shapes",)
    needs_cuda: bool = False
    compiles: bool = False


def frozen(module: M, at: Place, dtype: torch.dtype = torch.float32) -> M:
    """The module on the device, for inference."""
    return module.to(at.device, dtype).requires_grad_(False).eval()


def linears(at: Place, layers: int, width: int, dtype: torch.dtype = torch.float32) -> nn.ModuleList:
    """Square linear layers for inference."""
    return frozen(nn.ModuleList([nn.Linear(width, width) for _ in range(layers)]), at, dtype)
