"""What an operator's name says about it. Masks have one entry per name; index them with `trace.name[events]`."""

from __future__ import annotations

import re

import numpy as np

from lanewise.trace.model import Trace

__all__ = ["is_collective", "is_framework", "is_matrix_work", "is_view"]

_MATRIX = re.compile(
    r"^(aten|mkldnn|xnnpack|cudnn|_?quantized|fbgemm|xformers\w*|flash_attn\w*)::_?("
    r"(scaled_|int_|grouped_|sparse_)?(add|bad+)?b?mm\w*|addmv|mv|dot|matmul|linear|linear_\w+|einsum|bilinear|addbmm|baddbmm|"
    r"\w*conv\w*|\w*attention\w*|\w*attn\w*|\w*(lstm|gru|rnn)\w*)$"
)

# Operators that only describe memory that exists already. `reshape` and `contiguous` are views unless they copy, which
# shows as a launch below them.
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "t",
        "transpose",
        "transpose_",
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "as_strided",
        "expand",
        "expand_as",
        "permute",
        "select",
        "slice",
        "squeeze",
        "unsqueeze",
        "squeeze_",
        "unsqueeze_",
        "detach",
        "detach_",
        "view_as",
        "flatten",
        "unflatten",
        "unbind",
        "split",
        "split_with_sizes",
        "chunk",
        "narrow",
        "movedim",
        "swapaxes",
        "numpy_T",
        "alias",
        "lift_fresh",
        "unfold",
        "diagonal",
        "broadcast_to",
        "view_as_real",
        "view_as_complex",
        "resolve_conj",
        "resolve_neg",
    )
) | {"detach", "detach_"}

_COLLECTIVE = re.compile(
    r"^(c10d::|nccl:|record_param_comms$|_c10d_functional::|c10d_functional::|gloo:|xccl:|hccl:|ucc:)"
)
_FRAMEWORK = re.compile(
    r"^(fsdp::|FSDP::|ddp\.reducer|torch\.distributed\.ddp\.reducer|DistributedDataParallel\.|"
    r"Optimizer\.|autograd::engine::|DeepSpeed|megatron)"
)


def _mask(trace: Trace, pattern: re.Pattern[str]) -> np.ndarray:
    search = pattern.search
    return np.fromiter((search(name) is not None for name in trace.names), dtype=bool, count=len(trace.names))


def is_matrix_work(trace: Trace) -> np.ndarray:
    """Matrix products, convolutions, attention and recurrent layers, by operator name."""
    return _mask(trace, _MATRIX)


def is_view(trace: Trace) -> np.ndarray:
    """Operators that only change how existing memory is described."""
    return np.fromiter((name in _VIEWS for name in trace.names), dtype=bool, count=len(trace.names))


def is_collective(trace: Trace) -> np.ndarray:
    """Communication operators and their annotations."""
    return _mask(trace, _COLLECTIVE)


def is_framework(trace: Trace) -> np.ndarray:
    """Rows under which a framework, not the user's code, issues operators."""
    return _mask(trace, _FRAMEWORK)
