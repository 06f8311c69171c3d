"""The precision that a program itself asks for: single-precision products and convolutions may be computed in TF32.

torch allows TF32 in cuDNN's convolutions by default, and which of them use it depends on layout and algorithm: a result
that is off by a roundoff of TF32 is then as right as the program's own.
"""

from __future__ import annotations

from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch

__all__ = ["TF32", "declared_precision"]

_ConvNd: Any = torch_part("torch.nn.modules.conv")._ConvNd

TF32 = 2.0**-11 * 8.0
"""Unit roundoff of TF32 (10 bits of mantissa), times the room that a network of some depth needs for it to add up."""


def declared_precision(subject: Subject) -> float:
    """Roundoff that single-precision results may be off by because the process allows it; 0 where it does not."""
    if not subject.cuda or torch.cuda.get_device_capability(subject.device)[0] < 8:
        return 0.0
    if torch.get_float32_matmul_precision() != "highest":
        return TF32
    convolutions = any(
        isinstance(module, _ConvNd) and module.weight.dtype is torch.float32 for module in subject.every_module()
    )
    return TF32 if convolutions and torch.backends.cudnn.allow_tf32 else 0.0
