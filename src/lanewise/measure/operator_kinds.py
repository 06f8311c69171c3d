"""What an operator's name says about it. Masks have one entry per name; index them with `trace.name[events]`."""

from __future__ import annotations

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.model import Trace

__all__ = ["FRAMEWORK", "is_collective", "is_framework", "is_matrix_work", "is_view"]

_MATRIX = (
    r"^(?:aten|mkldnn|xnnpack|cudnn|quantized|fbgemm|flash_attn\w*|xformers\w*)::_?(?:(?:scaled_|int_|grouped_|sparse_)?"
    r"(?:add|badd)?b?mm\w*|addmv|mv|dot|matmul|linear|linear_\w+|einsum|bilinear|addbmm|baddbmm|\w*conv\w*|\w*attention\w*|"
    r"\w*(?:lstm|gru|rnn)\w*)$"
)

# Operators that only describe memory that exists already. `reshape` and `contiguous` are views unless they copy, which
# shows as a launch below them.
_VIEWS = [
    "t",
    "transpose",
    "transpose_",
    "view",
    "_unsafe_view",
    "reshape",
    "_reshape_alias",
    "as_strided",
    "as_strided_",
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
]

_COLLECTIVE = r"^(?:c10d::|nccl:|record_param_comms$|_c10d_functional::|c10d_functional::|gloo:|xccl:|hccl:|ucc:)"

FRAMEWORK = (
    r"^(?:fsdp::|FSDP::|(?:torch\.distributed\.)?ddp\.reducer|DistributedDataParallel\.|Optimizer\.|autograd::engine::|"
    r"DeepSpeed)"
)


def is_matrix_work(trace: Trace) -> np.ndarray:
    """Matrix products, convolutions, attention and recurrent layers."""
    return trace.name_mask(_MATRIX)


def is_view(trace: Trace) -> np.ndarray:
    """Operators that only change how existing memory is described."""
    return mask_of(len(trace.names), trace.name_ids("detach", "detach_", *(f"aten::{name}" for name in _VIEWS)))


def is_collective(trace: Trace) -> np.ndarray:
    """Communication operators and their annotations."""
    return trace.name_mask(_COLLECTIVE)


def is_framework(trace: Trace) -> np.ndarray:
    """Rows under which a framework, not the user's code, issues operators."""
    return trace.name_mask(FRAMEWORK)
