"""Convolutions computed in channels-last memory, of contiguous tensors and with a contiguous result.

cuDNN has its faster kernels for volumes, transposed and depthwise convolutions in channels-last memory, and what they
save is more than moving the tensors there and back costs, if that runs at the speed of memory
(`lanewise.kernels.layouts.memory_format`). Arguments are those of `torch.convolution`; so are the results, to rounding.
Inference only.

FLOP: those of the convolution; bytes besides its own: input, weight and result once in each direction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from lanewise.kernels.dispatch.eligibility import eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.layouts.memory_format import from_channels_last, to_channels_last

__all__ = ["convolution_channels_last", "convolved", "convolved_shape", "reference"]


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> torch.Tensor:
    """The plain PyTorch expression (and the fallback); `rest` is what `torch.convolution` takes after the bias."""
    out = torch.convolution(x, weight, bias, *rest)
    return out.contiguous()


def convolution_channels_last(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """`torch.convolution` of images or volumes, computed in channels-last memory; the result is contiguous."""
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    refused = _refuse(x, weight, bias)
    if refused is not None:
        fell_back("convolution_channels_last", refused)
        return reference(x, weight, bias, *rest)
    hit("convolution_channels_last")
    if not eager():
        return torch.ops.lanewise.convolution_channels_last(x, weight, bias, *rest)
    return convolved(x, weight, bias, *rest)


def convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> torch.Tensor:
    """The convolution on real tensors, in the type of its inputs; what has no channels-last memory is computed as it is."""
    images = _has_channels_last(x, weight)
    with _own_type(x), _measured_algorithm(x):
        if images:
            out = torch.convolution(to_channels_last(x), to_channels_last(weight), bias, *rest)
        else:
            out = torch.convolution(x, weight, bias, *rest)
    out = from_channels_last(out) if images else out.contiguous()
    # In either memory format an axis of one element may keep the other's stride.
    return out.view(-1).view(out.shape)


def convolved_shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> torch.Tensor:
    """The result of `convolved` on fake tensors."""
    with _own_type(x):
        out = torch.convolution(x, weight, bias, *rest)
    return torch.empty_like(out, memory_format=torch.contiguous_format)


@contextmanager
def _measured_algorithm(x: torch.Tensor) -> Generator[None]:
    """cuDNN measures its algorithms for new shapes and keeps the fastest: what it guesses for transposed convolutions of
    volumes in channels-last memory took 4 times as long on an H200."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    if not x.is_cuda or before or torch.cuda.is_current_stream_capturing():
        yield
        return
    cudnn.benchmark = True
    try:
        yield
    finally:
        cudnn.benchmark = before


def _own_type(x: torch.Tensor) -> AbstractContextManager[object]:
    """Autocast off: what is compiled under it runs without it, and the operator's type may not depend on that."""
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def _has_channels_last(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return x.dim() in (4, 5) and weight.dim() == x.dim()


def _refuse(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    refused = refuse_tensor(x, weight, bias)
    if refused is not None:
        return refused
    if not _has_channels_last(x, weight):
        return "neither images nor volumes"
    if wants_grad(x, weight, bias):
        return "needs gradients"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    return None
