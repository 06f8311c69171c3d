"""The rewrites as passes that torch's compiler runs, and keeps its compiled code by. Importing this imports torch."""

# The graph passes of torch are private and have no types.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files  # pyright: ignore[reportPrivateUsage]

from lanewise.fix.rewrites.convolutions import replace_convolutions
from lanewise.fix.rewrites.masks import lay_out_masks
from lanewise.fix.rewrites.products import replace_products
from lanewise.fix.rewrites.which_is_faster import Faster
from lanewise.kernels.dispatch.tuning import source_hash

__all__ = ["passes"]


class _Pass(CustomGraphPass):
    """One rewrite. Code that was compiled with it is found again by the sources of all rewrites and kernels."""

    def __init__(self, name: str, rewrite: Callable[[Any], None]) -> None:
        self._name = name
        self._rewrite = rewrite

    def __call__(self, graph: Any) -> None:
        self._rewrite(graph)

    def uuid(self) -> Any:
        return f"lanewise {self._name} {_sources()} {torch.get_float32_matmul_precision()}"


@cache
def _sources() -> str:
    mine = sorted(map(str, Path(__file__).parent.glob("*.py")))
    return get_hash_for_files(tuple(mine), source_hash()).hex()


def passes() -> dict[str, Any]:
    """Options for `torch.compile`: masks before attention is decomposed, the rest in what the compiler lowers, where
    gradients have become operators of their own.
    """
    faster = Faster()

    def library_calls(graph: Any) -> None:
        replace_products(graph, faster)
        replace_convolutions(graph, faster)

    return {
        "pre_grad_custom_pass": _Pass("masks", lay_out_masks),
        "post_grad_custom_pre_pass": _Pass("library calls", library_calls),
    }
