"""Attention masks in the layout that fused attention reads.

PyTorch's fused kernels take a mask only if the values of a row lie side by side. A mask that is expanded along its rows,
or was permuted (a bias by relative position), makes it compute attention operator by operator, in single precision for
halves. Copying such a mask is a small price.
"""

from __future__ import annotations

from typing import Any

from lanewise.fix.typed_torch import torch

__all__ = ["lay_out_masks"]

_PLACE = 3
"""Of the mask among the positional arguments of scaled_dot_product_attention."""


def lay_out_masks(graph: Any) -> None:
    """Copy every mask whose rows do not lie side by side; a graph of the program's own operators, changed in place."""
    attention = torch.nn.functional.scaled_dot_product_attention
    changed = False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not attention:
            continue
        mask = node.kwargs.get("attn_mask") if len(node.args) <= _PLACE else node.args[_PLACE]
        like = getattr(mask, "meta", {}).get("example_value")
        if like is None or like.dim() < 2 or like.stride(-1) == 1 or like.shape[-1] == 1:
            continue
        with graph.inserting_before(node):
            copied = _copied(graph, mask, like)
        node.replace_input_with(mask, copied)
        changed = True
    if changed:
        graph.lint()


def _copied(graph: Any, mask: Any, like: Any) -> Any:
    """The mask with its rows side by side; whole matrices that are there once only, for all heads or samples, stay so."""
    once = [at for at in range(like.dim() - 2) if like.stride(at) == 0 and like.shape[at] > 1]
    for at in once:
        mask = graph.call_method("narrow", (mask, at, 0, 1))
    mask = graph.call_method("contiguous", (mask,))
    return graph.call_method("expand", (mask, *like.shape)) if once else mask
