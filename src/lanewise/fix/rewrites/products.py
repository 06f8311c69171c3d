"""Single-precision products on the tensor cores, as exact as without, where that is measured to be faster.

What computes them is `lanewise.kernels.split_product`.
"""

from __future__ import annotations

from typing import Any

from lanewise.fix.rewrites.replaced import of_one_size, replace
from lanewise.fix.rewrites.which_is_faster import Faster
from lanewise.fix.typed_torch import torch

__all__ = ["replace_products"]


def replace_products(graph: Any, faster: Faster) -> None:
    """Replace `mm` and `addmm` of single precision in a graph of aten operators, in place.

    Not where TF32 is allowed (cuBLAS computes one product then, not three), for sizes that change from call to call, for
    sums of matrices, and for vectors, whose products the compiler makes part of what is around them.
    """
    if torch.get_float32_matmul_precision() != "highest":
        return
    from lanewise.kernels import split_product

    del split_product  # importing it registers the operator
    aten, ours = torch.ops.aten, torch.ops.lanewise.split_product.default
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in (aten.mm.default, aten.addmm.default):
            continue
        bias, a, b = (None, *node.args) if node.target is aten.mm.default else node.args
        likes = [one.meta.get("val") for one in (a, b, bias) if one is not None]
        if node.kwargs or not all(map(_fits, likes)) or (bias is not None and likes[2].dim() != 1):
            continue
        if likes[0].shape[0] == 1 or likes[1].shape[1] == 1:
            continue
        if not faster(str(node.target), _ours, _theirs, likes):
            continue
        replace(graph, node, ours, (a, b, bias))


def _ours(a: Any, b: Any, bias: Any = None) -> Any:
    return torch.ops.lanewise.split_product(a, b, bias)


def _theirs(a: Any, b: Any, bias: Any = None) -> Any:
    return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)


def _fits(like: Any) -> bool:
    return of_one_size(like) and like.dtype is torch.float32
