"""Which kernel computes scaled-dot-product attention, where the program uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.predictions import operator_appears
from lanewise.fix.gate.worklist import WorkList
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.record.torched import torch_part

__all__ = ["candidates"]

torch: Any = torch_part()

_ON_CARD = {
    "sdpa-flash": ("FLASH_ATTENTION", "_scaled_dot_product_flash_attention"),
    "sdpa-efficient": ("EFFICIENT_ATTENTION", "_scaled_dot_product_efficient_attention"),
    "sdpa-cudnn": ("CUDNN_ATTENTION", "_scaled_dot_product_cudnn_attention"),
    "sdpa-math": ("MATH", "_scaled_dot_product_attention_math"),
}
_ON_HOST = {
    "sdpa-flash": ("FLASH_ATTENTION", "_scaled_dot_product_flash_attention_for_cpu"),
    "sdpa-math": ("MATH", "_scaled_dot_product_attention_math"),
}


def candidates(subject: Subject, work: WorkList) -> list[Candidate]:
    """Every backend but the one in use; none where no attention operator runs."""
    used = [name for name in work.counts if "scaled_dot_product" in name or "_attention" in name]
    if not used:
        return []
    made: list[Candidate] = []
    for name, (backend, operator) in (_ON_CARD if subject.cuda else _ON_HOST).items():
        if any(operator in one for one in used) or not hasattr(torch.nn.attention.SDPBackend, backend):
            continue
        made.append(
            Candidate(
                name,
                "attention",
                "whole",
                f"attention by the {backend.lower().replace('_', ' ')} backend",
                lambda subject, backend=backend: ForwardPatch(subject.entry, _with_backend(backend)),
                predictions=(operator_appears(operator),),
                answers=("KER108", "KER109"),
                saves=work.share("attention"),
            )
        )
    return made


def _with_backend(backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    chosen = getattr(torch.nn.attention.SDPBackend, backend)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with torch.nn.attention.sdpa_kernel(chosen):
                return original(*args, **kwargs)

        return forward

    return make
