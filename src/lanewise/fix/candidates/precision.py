"""Lower precision, only where the user allowed it by name: TF32 products, bfloat16 autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate, Setting
from lanewise.fix.candidates.predictions import kernel_named, operator_appears
from lanewise.fix.gate.declared_precision import TF32
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors
from lanewise.fix.typed_torch import torch

__all__ = ["candidates"]


# As for TF32: the unit roundoff times the room that a network of some depth needs for it to add up.
_BF16 = 2.0**-8 * 8.0


def candidates(subject: Subject) -> list[Candidate]:
    """TF32 on CUDA cards that have it, autocast everywhere; both for single precision only."""
    if not subject.single_precision():
        return []
    made: list[Candidate] = []
    if subject.cuda and torch.cuda.get_device_capability(subject.device)[0] >= 8:
        if torch.get_float32_matmul_precision() == "highest":
            made.append(
                Candidate(
                    "tf32",
                    "precision",
                    "process",
                    "single-precision products on the tensor cores, their inputs rounded to 10 bits",
                    lambda _: Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
                    refused_unless_allowed="products round their inputs to 10 bits of mantissa",
                    precision=TF32,
                    predictions=(
                        kernel_named("products run on the tensor cores", ("tf32", "s1688", "tensorop", "gmma")),
                    ),
                    answers=("KER104",),
                )
            )
    if not torch.is_autocast_enabled(subject.device.type) and subject.kind != "step":
        made.append(
            Candidate(
                "bf16-autocast",
                "precision",
                "whole",
                "products and convolutions in bfloat16 under autocast; results are given back in their type",
                lambda subject: ForwardPatch(subject.entry, _autocast(subject)),
                refused_unless_allowed="products and convolutions are computed with 8 bits of mantissa",
                precision=_BF16,
                predictions=(operator_appears("_to_copy"),),
                answers=("KER104",),
            )
        )
    return made


def _autocast(subject: Subject) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    device = subject.device.type

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device, torch.bfloat16):
                result = original(*args, **kwargs)
            return map_tensors(lambda t: t.float() if t.dtype is torch.bfloat16 else t, result)

        return forward

    return make
