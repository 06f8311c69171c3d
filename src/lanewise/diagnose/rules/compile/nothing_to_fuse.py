"""CMP105."""

from __future__ import annotations

import re

import numpy as np

from lanewise.diagnose.rule import Clear, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts

# `triton_poi_fused__unsafe_view_gelu_mul_0`: the operators of a fused kernel, views among them.
_FUSED = re.compile(r"^triton_(?:poi|red|per|for|tem|mm)_fused_(\w+?)_\d+$")
_VIEWS = [
    "unsafe_view",
    "view",
    "t",
    "transpose",
    "permute",
    "expand",
    "unsqueeze",
    "squeeze",
    "select",
    "slice",
    "clone",
    "to_copy",
    "copy",
    "detach",
    "reshape",
    "as_strided",
]
# Names of one operator that hold underscores themselves; longer ones first.
_LONG = [
    "native_layer_norm_backward",
    "native_batch_norm_backward",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_batch_norm",
    "native_group_norm",
    "native_dropout_backward",
    "native_dropout",
    "log_softmax_backward_data",
    "softmax_backward_data",
    "log_softmax",
    "safe_softmax",
    "threshold_backward",
    "gelu_backward",
    "silu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "leaky_relu",
    "masked_fill",
    "index_select",
    "index_put",
    "constant_pad_nd",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "rms_norm",
    "layer_norm",
    "batch_norm",
    "group_norm",
    "embedding_dense_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "cross_entropy",
    "clamp_min",
    "clamp_max",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "scalar_tensor",
    "var_mean",
    "std_mean",
    "logical_and",
    "logical_or",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
]


@rule(
    "CMP105",
    "nothing-to-fuse",
    kind="statement",
    title="Compiling changed how the kernels are launched, not what they do.",
)
def nothing_to_fuse(facts: Facts) -> Outcome:
    """Compilation fused nothing: every kernel of the eager program is still there.

    Matrix products stay library kernels. What torch.compile can fuse are the pointwise operators around them; where
    there is at most one between two products, compiling changes dispatch and nothing else.

    Costs: nothing by itself; CMP103 says when entering the region costs more than it saves.

    Fix: none needed; drop compilation here, or compile a wider region with more to fuse.

    Verify: the same kernels, one to one, compiled and eager.

    Silent: without an eager recording of the same program to compare with, and where one compiled kernel covers several
    operators.

    Source: huggingface/blog torch-mlp-fusion; 1479 against 1475 us per step on our H100.
    """
    if not facts.regions.present:
        return NotApplicable("nothing compiled runs")
    trace = facts.trace
    for name in np.unique(trace.name[trace.device_work]).tolist():
        operators = fused_operators(trace.names[int(name)])
        if len(operators) > 1:
            return Clear(f"{trace.names[int(name)][:80]} covers {' and '.join(operators[:4])}")
        if "_badd" in trace.names[int(name)]:
            return Clear("an addition was folded into a matrix product")
    return NeedsCapture("the same program run eagerly: whether kernels map one to one shows only in comparison")


def fused_operators(kernel: str) -> list[str]:
    """Operators that a compiled kernel's name lists, views and copies left out."""
    found = _FUSED.match(kernel)
    if not found:
        return []
    text = "_" + found[1] + "_"
    for name in _LONG:
        text = text.replace(f"_{name}_", f"_{name.replace('_', ' ')}_")
    for view in _VIEWS:
        text = text.replace(f"_{view}_", "_")
    return [part.replace(" ", "_") for part in text.strip("_").split("_") if part]
