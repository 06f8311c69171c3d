"""Phases that a name alone tells: of an operator, an annotation or a Python frame."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lanewise.tree.model import Phase

__all__ = ["CHECKPOINT", "COMMUNICATION", "STEP_NAME", "TRANSFERS", "communicates", "phase_of_name"]

COMMUNICATION = (
    r"^(nccl|gloo|mpi|ucc|xccl|hccl|rccl)[:_]|^c10d::|^record_param_comms$|^_c10d_functional::|^FSDP::(all|reduce|post)"
    r"|^symm_mem::"
)
_OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#|^(optimizer|optimizer[ _.]step|opt[ _]step)$", re.IGNORECASE)
_OPTIMIZER_FRAME = re.compile(r"^torch/optim/(?!lr_scheduler)")
_DATA = re.compile(r"^enumerate\(DataLoader\)#|^(data|dataloader|data[ _]load(ing|er)?|load[ _]batch)$", re.IGNORECASE)
_DATA_FRAME = re.compile(r"^torch/utils/data/")
_BACKWARD = re.compile(r"^(#* *)?(backward|backward[ _]pass|loss[ _]backward|bwd)( *#*)?$", re.IGNORECASE)
_BACKWARD_FRAME = re.compile(
    r"^torch/(_tensor|autograd/__init__|autograd/graph)\.py\(\d+\): (backward|grad|_engine_run_backward)$"
)
_FORWARD = re.compile(
    r"^(#* *)?(forward|forward[ _]pass|model[ _]forward|fwd)( *#*)?$|^DistributedDataParallel\.forward$", re.IGNORECASE
)
CHECKPOINT = re.compile(r"^torch/utils/checkpoint\.py|^CheckpointFunctionBackward$|recompute_fn")

# Moving data and reading it back: forward work only where it stands inside the forward pass.
TRANSFERS = (
    r"^aten::(to|_to_copy|copy_|item|_local_scalar_dense|pin_memory|_pin_memory|is_pinned|empty.*|zeros.*|ones.*|fill_|"
    r"set_.*|resize_.*|detach.*|lift_fresh|is_nonzero|cpu|cuda|_has_compatible_shallow_copy_type)$"
)

STEP_NAME = re.compile(r"^ProfilerStep#(\*|\d+)$")
"""The mark that torch's profiler and ours put around a step: a window of time, not a place in the program."""

_PATTERNS = (
    (Phase.OPTIMIZER, _OPTIMIZER),
    (Phase.OPTIMIZER, _OPTIMIZER_FRAME),
    (Phase.DATA, _DATA),
    (Phase.DATA, _DATA_FRAME),
    (Phase.BACKWARD, _BACKWARD),
    (Phase.BACKWARD, _BACKWARD_FRAME),
    (Phase.FORWARD, _FORWARD),
)


def phase_of_name(text: str) -> int:
    """The phase that a name tells, or -1."""
    for phase, pattern in _PATTERNS:
        if pattern.search(text):
            return phase
    return -1


def communicates(names: Sequence[str]) -> np.ndarray:
    """Whether each name is that of communication between processes, shape (names,)."""
    pattern = re.compile(COMMUNICATION)
    return np.array([bool(pattern.search(name)) for name in names], dtype=bool)
