"""When a kernel may stand in for the original, and how often it did.

Every public function of `lanewise.kernels` first asks a guard. A guard answers with the reason for refusing, or None;
a refusal runs the plain PyTorch expression, exactly, and is counted under its reason. Nothing is silent: `counts()`
says how many calls each kernel took and why the others did not reach it.
"""

# Private parts of torch have no types, or change them.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import torch

from lanewise.kernels.dispatch.launcher import INTERPRETED, raw_stream

__all__ = [
    "HITS",
    "HOST_BOUND",
    "NORM",
    "compiling",
    "counts",
    "eager",
    "fell_back",
    "hit",
    "host_bound",
    "refuse_norm",
    "refuse_tensor",
    "reset_counts",
    "too_small_to_train",
    "wants_grad",
]

_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
train_from_elements = 1 << 25
"""Fewest elements for which an eager call of softmax that needs gradients takes a kernel; norms need twice as many.

Measured on an H200 machine (benchmarks/kernels/training.py): forward and backward cost 110 to 190 us of host time
against eager's 95 to 150, and from this size on eager takes longer than that on the device. Inside a CUDA graph the
host does not matter: capturing lifts the limit. Set it to 0 for programs that capture or compile their step anyway.
"""

_COUNTS: Counter[tuple[str, str]] = Counter()
HITS: defaultdict[str, int] = defaultdict(int)
_stack_length = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def counts() -> dict[str, dict[str, int]]:
    """Calls per function: `{"softmax": {"kernel": 12, "cpu tensor": 1}}`."""
    table: dict[str, dict[str, int]] = {}
    taken = {(name, "kernel"): number for name, number in HITS.items()}
    for (name, outcome), number in sorted({**_COUNTS, **taken}.items()):
        table.setdefault(name, {})[outcome] = number
    return table


def reset_counts() -> None:
    _COUNTS.clear()
    HITS.clear()


def hit(name: str) -> None:
    HITS[name] += 1


def fell_back(name: str, reason: str) -> None:
    _COUNTS[name, reason] += 1


def refuse_tensor(*tensors: torch.Tensor | None) -> str | None:
    """Reason why no kernel here takes these tensors: subclass, device, dtype, or several devices."""
    device = None
    for tensor in tensors:
        if tensor is None:
            continue
        kind = type(tensor)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter and not _traced(tensor):
            return "tensor subclass"
        if tensor.dtype not in _FLOATS:
            return "dtype"
        if not tensor.is_cuda and not INTERPRETED:
            return "cpu tensor"
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            return "several devices"
    return None


def refuse_norm(x: torch.Tensor, *others: torch.Tensor | None) -> str | None:
    """Reason why a normalisation is left to PyTorch.

    Autocast runs layer_norm in fp32 whatever the weights are, and PyTorch promotes mixed dtypes: both keep their own
    path. `others` are weights and biases [cols], or a residual of the shape of x.
    """
    refused = refuse_tensor(x, *others)
    if refused is not None:
        return refused
    if x.dim() == 0:
        return "rank 0"
    for other in others:
        if other is None:
            continue
        if other.dtype != x.dtype:
            return "mixed dtypes"
        if other.shape != x.shape and (other.dim() != 1 or other.shape[0] != x.shape[-1] or not other.is_contiguous()):
            return "weight or residual shape"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    return None


def _traced(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(tensor, FakeTensor | FunctionalTensor)


compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling


def eager() -> bool:
    """True when nothing looks at the call but the device: no compilation, no dispatch mode, no functorch transform.

    Then the cheap launch path is used; otherwise the registered operator is, which all of those can see.
    """
    return not compiling() and _stack_length() == 0 and _transform() is None


def too_small_to_train(x: torch.Tensor, times: int = 1) -> bool:
    """Whether a call on `x` that is not being compiled is an eager one, records gradients and is `host_bound`.

    Asked before anything else, so that such a call costs hardly more than PyTorch's own, which it runs.
    """
    if not (x.requires_grad and x.is_cuda and torch.is_grad_enabled() and host_bound(x, times)):
        return False
    return _stack_length() == 0 and _transform() is None


def host_bound(x: torch.Tensor, times: int = 1) -> bool:
    """Whether autograd's host cost would outweigh what the kernel saves on the device, for an operator that needs
    `times` as many elements as softmax."""
    if INTERPRETED or x.numel() >= times * train_from_elements:
        return False
    if x.is_cuda and raw_stream(x.device.index) == 0:  # the default stream: nothing can be captured on it
        return True
    return not torch.cuda.is_current_stream_capturing()


HOST_BOUND = "host-bound with gradients"
NORM = 2
"""How many times the elements of softmax a norm needs to pay (`host_bound`)."""


def wants_grad(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd has to record this call."""
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:  # noqa: SIM110 - a generator costs more than the rest of the call
        if tensor is not None and tensor.requires_grad:
            return True
    return False
