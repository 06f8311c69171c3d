"""Convolutions of volumes in channels-last memory, where that is measured to be faster with its conversions.

The compiler chooses that layout by itself for images; volumes it leaves as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.rewrites.replaced import of_one_size, replace
from lanewise.fix.rewrites.which_is_faster import Faster
from lanewise.fix.typed_torch import torch

__all__ = ["replace_convolutions"]

_OPTIONS = 6
"""After input, weight and bias: stride, padding, dilation, transposed, output padding, groups."""


def replace_convolutions(graph: Any, faster: Faster) -> None:
    """Replace `convolution` in a graph of aten operators, in place; not for sizes that change from call to call."""
    from lanewise.kernels import to_channels_last

    del to_channels_last  # importing it registers the operator
    aten, ours = torch.ops.aten.convolution, torch.ops.lanewise.convolution_channels_last.default
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not aten.default or node.kwargs:
            continue
        x, weight, bias, *options = node.args
        likes = [one.meta.get("val") for one in (x, weight, bias) if one is not None]
        if len(options) != _OPTIONS or not all(map(of_one_size, likes)) or not _contiguous_volume(likes[0]):
            continue

        mine, others = (_with_options(way, bias is not None, options) for way in (ours, aten))
        if not faster(f"{node.target} {options}", mine, others, likes):
            continue
        replace(graph, node, ours, tuple(node.args))


def _with_options(way: Any, has_bias: bool, options: list[Any]) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        return way(*tensors, *([] if has_bias else [None]), *options)

    return call


def _contiguous_volume(x: Any) -> bool:
    return x.dim() == 5 and x.is_contiguous()
