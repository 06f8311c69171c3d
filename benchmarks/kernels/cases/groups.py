"""All cases, by group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from benchmarks.kernels.cases.case import Case
from benchmarks.kernels.cases.chains import pointwise_cases
from benchmarks.kernels.cases.gradients import backward_cases
from benchmarks.kernels.cases.grid import grid_cases
from benchmarks.kernels.cases.products import batched_cases, dual_cases, gemm_cases, plain_cases
from benchmarks.kernels.cases.rows import norm_cases, softmax_cases
from benchmarks.kernels.cases.whole_mlps import gated_mlp_cases, mlp_cases

__all__ = ["GROUPS", "cases"]


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "pointwise": pointwise_cases,
    "softmax": softmax_cases,
    "norm": norm_cases,
    "backward": backward_cases,
    "mlp": mlp_cases,
    "mm": plain_cases,
    "gemm": gemm_cases,
    "gated_linear": dual_cases,
    "batched": batched_cases,
    "gated_mlp": gated_mlp_cases,
    "grid": grid_cases,
}


def cases(groups: tuple[str, ...] = (), match: str = "") -> list[Case]:
    """The cases of the groups (all by default) whose name holds the regular expression `match`."""
    return [case for name in (groups or tuple(GROUPS)) for case in GROUPS[name]() if re.search(match, case.name)]
