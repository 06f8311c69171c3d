"""What in a trace shows that its program used a device, where no work of a device was recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["memory_calls", "signs_of_a_device"]

# Operators and annotations that only ever run on a device, or for one.
_OPERATORS = (
    r"(?i)\b_?(?:cudnn|miopen)_|\b(?:nccl|rccl|xccl|hccl|cncl|mccl):|^(?:npu|torch_ipex|torch_musa|hpu|hcu)::|::_?npu_|"
    r"::_?mps_|_for_mps\b|::record_stream$|::_scaled_dot_product_(?:flash|efficient|cudnn)_attention(?:_backward)?$|"
    r"::_(?:flash|efficient)_attention_(?:forward|backward)$|^flash_attn(?:_\w+)?::|_cuda$"
)
_FRAMES = (
    r"torch[/\\](?:cuda|xpu)[/\\](?:streams|graphs)\.py\(|torch_(?:npu|xla|musa)[/\\]|"
    r"_(?:cuda|xpu|mps|npu)_?(?:synchronize|emptyCache|deviceSynchronize)\b"
)
_BACKENDS = frozenset({"nccl", "rccl", "xccl", "hccl", "cncl", "mccl"})


def signs_of_a_device(trace: Trace) -> str:
    """What shows that a device was used, in words for a sentence; "" where nothing does."""
    for sign in (_named(trace), _triton(trace), _memory(trace), _backend(trace), _frames(trace)):
        for text in sign:
            return text
    return ""


def memory_calls(trace: Trace) -> np.ndarray:
    """Calls that ask the driver for memory or give it back."""
    return trace.links.calls("allocate", "free")


def _named(trace: Trace) -> Iterator[str]:
    rows = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    rows = rows[trace.name_mask(_OPERATORS)[trace.name[rows]]] if len(rows) else rows
    if len(rows):
        yield f"{trace.name_of(int(rows[0]))[:80]} runs on nothing else"


def _triton(trace: Trace) -> Iterator[str]:
    rows = trace["triton_args"]["event"]
    if len(rows):
        yield f"{trace.name_of(int(rows[0]))[:80]} is a Triton kernel"


def _memory(trace: Trace) -> Iterator[str]:
    if (trace["memory"]["device_type"] > 0).any():
        yield "memory of a device was allocated"


def _backend(trace: Trace) -> Iterator[str]:
    job = trace.metadata.get("distributedInfo")
    backend = job.get("backend") if isinstance(job, dict) else None
    if isinstance(backend, str) and backend in _BACKENDS:
        yield f"its processes talk through {backend}"


def _frames(trace: Trace) -> Iterator[str]:
    rows = trace.of(Kind.PYTHON)
    rows = rows[trace.name_mask(_FRAMES)[trace.name[rows]]] if len(rows) else rows
    if len(rows):
        yield f"{trace.name_of(int(rows[0]))[:80]} was called"
