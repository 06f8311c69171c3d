"""What every case consists of, and how far a result is from the exact one.

An arm is a callable over one input set. `eager` is what a user writes, `lanewise` what this library offers, `compile`
and `max-autotune` are torch.compile of the eager arm (default mode and max-autotune-no-cudagraphs), the rest is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from lanewise.kernels.cost import Cost

__all__ = ["BF16", "Case", "error", "randn"]


BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """One shape of one kernel."""

    group: str
    name: str
    make: Callable[[int], tuple[Any, ...]]
    arms: dict[str, Callable[..., Any]]
    cost: Cost
    exact: Callable[..., Any]
    """Result in fp32 or fp64 from the same inputs."""
    compiled: tuple[str, ...] = ("compile",)
    """Which torch.compile modes compete: "compile", "max-autotune"."""
    tune: tuple[str, Any, tuple[Any, ...]] | None = None
    """Kernel name, key and candidate configurations for the tuner."""
    dtypes: str = "bf16"
    shape: dict[str, int] = field(default_factory=dict[str, int])


def error(got: Any, want: Any) -> float:
    """max |got - want| / max |want| over all outputs; infinite when the non-finite entries differ."""
    worst = 0.0
    gots = got if isinstance(got, tuple | list) else (got,)
    wants = want if isinstance(want, tuple | list) else (want,)
    for mine, true in zip(gots, wants, strict=True):
        if mine is None or true is None:
            continue
        a, b = mine.double(), true.double()
        if not torch.equal(a.isfinite(), b.isfinite()):
            return float("inf")
        a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item())
    return worst


def randn(*shape: int, seed: int, scale: float = 1.0, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Normal values on the device, the same ones for the same seed."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(*shape, device="cuda", generator=generator) * scale).to(dtype)
