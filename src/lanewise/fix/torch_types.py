"""The types of torch that annotations name. Nothing is imported when they are read at run time: torch is the program's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["DType", "Device", "Generator", "Module", "Optimizer", "Tensor"]

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    Device: TypeAlias = torch.device
    DType: TypeAlias = torch.dtype
else:
    Device = DType = Generator = Module = Optimizer = Tensor = Any
