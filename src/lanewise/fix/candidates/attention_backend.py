"""Which kernel computes scaled-dot-product attention, where the program uses it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate, NotApplicableError
from lanewise.fix.candidates.predictions import operator_appears
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch
from lanewise.fix.work.worklist import WorkList

__all__ = ["candidates", "with_backend"]


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

_one_at_a_time = threading.RLock()

_NO_KERNEL = "No available kernel"


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
                f"attention by the {_said(backend)} backend",
                lambda subject, backend=backend: ForwardPatch(subject.entry, with_backend(backend)),
                predictions=(operator_appears(operator),),
                answers=("KER108", "KER109"),
                saves=work.share("attention"),
            )
        )
    return made


def with_backend(backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the call that lets one backend only compute attention; its first call raises NotApplicableError if none can."""
    chosen = getattr(torch.nn.attention.SDPBackend, backend)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        taken: list[bool] = []

        def forward(*args: Any, **kwargs: Any) -> Any:
            # The backends are settings of the process: threads would put back each other's.
            with _one_at_a_time, torch.nn.attention.sdpa_kernel(chosen):
                return original(*args, **kwargs) if taken else first(*args, **kwargs)

        def first(*args: Any, **kwargs: Any) -> Any:
            try:
                # torch warns of each backend that may not be used, and why: here none but one may.
                with warnings.catch_warnings(action="ignore", category=UserWarning):
                    result = original(*args, **kwargs)
            except RuntimeError as error:
                if _NO_KERNEL not in str(error):
                    raise
                raise NotApplicableError(f"no kernel of the {_said(backend)} backend takes these calls") from error
            taken.append(True)
            return result

        return forward

    return make


def _said(backend: str) -> str:
    return backend.lower().replace("_", " ")
