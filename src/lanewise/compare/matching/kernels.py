"""What two kernels must share to be the same kernel, the same work, or part of one another.

Names differ for reasons that are no difference: the number of a generated kernel, lambda numbers, array wrappers that
PyTorch renamed. What is left is an *identity*. Two more things matter: the epilogue of a matrix product (`bz` became
`badd`), which says what was merged into it, and the operators that a generated kernel covers, which its name lists.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from lanewise.measure.kernel_names import family

__all__ = ["Identity", "fused_operators", "identity", "operator_words"]

_MANY = 1 << 16


class Identity(NamedTuple):
    """What a kernel's name says once noise is removed.

    Attributes:
        name: the name without the noise; equal names are the same kernel, whatever its launch configuration.
        base: `name` without the epilogue of a matrix product; equal bases do the same product.
        epilogue: what a matrix product does on its way out: `bias`, `badd`, `gelu` ...
        family: one of `measure.kernel_names.FAMILIES`, with generated templates in the family of what they compute.
        fused: operators that a generated kernel covers, as its name lists them; empty for other kernels.
    """

    name: str
    base: str
    epilogue: tuple[str, ...]
    family: str
    fused: tuple[str, ...]


_TRITON = re.compile(r"^triton_(?P<kind>[a-z]+?)_(?:fused_)?(?P<body>\w+?)(?:_\d+)?$")
_GENERATED = re.compile(r"^triton_[a-z]+_fused_")
_OLD_SPECIALISATION = re.compile(r"_(?:\d+[dec]+)+$")
_NVJET_EPILOGUE = frozenset({"bz", "badd", "bias", "relu", "gelu", "aux", "biasgrad", "drelu", "dgelu"})
_WORD = re.compile(r"[A-Za-z_]\w*")
# Words of a C++ kernel name that say how it was built and not what it does.
_NOISE_WORDS = """
    at native c10 std array detail Array char ul int unsigned long bool true false void const operator lambda
    TensorIteratorBase TensorIterator anonymous namespace TrivialOffsetCalculator OffsetCalculator
    LoadWithoutCast StoreWithoutCast memory policies function_traits result_type binary_internal size_t int64_t
    uint32_t auto u
"""
_NOISE = frozenset(_NOISE_WORDS.split())

# Names that generated kernels list in one piece although they hold underscores. Longest first when matching.
_COMPOUND_WORDS = """
    _to_copy _unsafe_view _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm
    native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm
    cudnn_batch_norm_backward native_dropout native_dropout_backward nll_loss nll_loss_forward nll_loss_backward
    nll_loss2d_forward embedding_dense_backward embedding_backward index_select index_put index_add index_copy
    masked_fill masked_fill_ silu_backward gelu_backward relu_backward threshold_backward sigmoid_backward
    tanh_backward elu_backward leaky_relu leaky_relu_backward hardtanh_backward hardswish_backward mse_loss
    mse_loss_backward smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits cross_entropy_loss
    constant_pad_nd slice_backward select_backward slice_scatter select_scatter max_pool2d
    max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d
    adaptive_avg_pool2d mean_backward sum_backward new_zeros new_ones new_full zeros_like ones_like full_like
    empty_like rand_like randn_like scalar_tensor logical_and logical_or logical_not bitwise_and bitwise_or
    bitwise_not bitwise_xor var_mean layer_norm rms_norm _fused_rms_norm _fused_rms_norm_backward group_norm
    batch_norm _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    scaled_dot_product_attention convolution_backward clamp_min clamp_max upsample_nearest2d upsample_bilinear2d
    scatter_add scatter_reduce repeat_interleave floor_divide true_divide lift_fresh_copy lift_fresh
    unsafe_split split_with_sizes as_strided as_strided_scatter _foreach_copy copy_ view_as_real view_as_complex
    log_softmax log_sigmoid_forward softmax_backward _weight_norm_interface addcmul_ addcdiv_ cumsum_ rsub_
    detach_ any_ all_
"""
_COMPOUND = sorted(_COMPOUND_WORDS.split(), key=len, reverse=True)

# Operators that compile into others before their kernel is named.
_DECOMPOSED: dict[str, tuple[str, ...]] = {
    "silu": ("sigmoid", "mul"),
    "silu_backward": ("sigmoid", "mul", "sub", "add", "fill", "silu"),
    "gelu": ("erf", "tanh", "mul", "add", "pow"),
    "gelu_backward": ("erf", "exp", "tanh", "mul", "add", "pow", "gelu"),
    "softmax": ("_softmax", "amax", "exp", "sub", "sum", "div"),
    "_softmax": ("softmax", "amax", "exp", "sub", "sum", "div"),
    "_softmax_backward_data": ("mul", "sum", "sub"),
    "_log_softmax": ("log_softmax", "amax", "exp", "sub", "sum", "log"),
    "_log_softmax_backward_data": ("exp", "mul", "sum", "sub"),
    "_safe_softmax": ("_softmax", "softmax", "eq", "any", "where"),
    "layer_norm": ("native_layer_norm", "var_mean", "rsqrt", "mul", "add"),
    "native_layer_norm": ("layer_norm", "var_mean", "rsqrt", "mul", "add"),
    "rms_norm": ("_fused_rms_norm", "pow", "mean", "rsqrt", "mul", "add"),
    "_fused_rms_norm": ("rms_norm", "pow", "mean", "rsqrt", "mul", "add"),
    "native_dropout": ("bernoulli", "rand", "gt", "mul"),
    "dropout": ("native_dropout", "bernoulli", "rand", "gt", "mul"),
    "nll_loss_forward": ("nll_loss", "cross_entropy_loss"),
    "nll_loss_backward": ("scatter", "nll_loss"),
    "embedding_dense_backward": ("embedding_backward", "index_put", "fill", "full"),
    "to": ("_to_copy",),
    "_to_copy": ("convert_element_type", "copy"),
    "copy": ("_to_copy", "clone", "contiguous", "convert_element_type", "slice_scatter", "select_scatter"),
    "contiguous": ("clone",),
    "reshape": ("clone",),
    "repeat": ("clone", "expand"),
    "fill": ("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "new_zeros", "new_ones", "scalar_tensor"),
    "zero": ("fill", "full", "zeros", "zeros_like", "new_zeros"),
    "zeros": ("full",),
    "ones": ("full",),
    "masked_fill": ("where", "scalar_tensor"),
    "where": ("masked_fill",),
    "rsub": ("sub",),
    "neg": ("sub",),
    "div": ("mul", "true_divide"),
    "batch_norm": ("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm"),
    "native_batch_norm": ("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "cudnn_batch_norm"),
    "cudnn_batch_norm": ("_native_batch_norm_legit_functional", "native_batch_norm"),
    "relu": ("threshold", "clamp_min", "maximum"),
    "threshold_backward": ("relu_backward", "le", "where"),
    "max_pool2d_with_indices": ("max_pool2d",),
    "add": ("addmm", "bias"),
    "slice_backward": ("slice_scatter", "full"),
    "select_backward": ("select_scatter", "full"),
    "mse_loss": ("pow", "sub", "mean"),
    "mse_loss_backward": ("mul", "sub"),
}


@lru_cache(maxsize=_MANY)
def identity(name: str) -> Identity:
    """Identity of a kernel by its name. Kernels of any vendor; unknown names keep all their words."""
    if name.startswith("triton_"):
        text = _OLD_SPECIALISATION.sub("", name)
        fused = fused_operators(text)
        text = re.sub(r"_\d+$", "", text)
        return Identity(text, text, (), _generated_family(text, fused), fused)
    if name.startswith("nvjet_"):
        words = name.split("_")
        epilogue = tuple(word for word in words if word in _NVJET_EPILOGUE and word != "bz")
        base = "_".join(word for word in words if word not in _NVJET_EPILOGUE)
        return Identity(name, base, epilogue, "gemm", ())
    text = _plain(name)
    return Identity(text, text, (), family(name), ())


def fused_operators(name: str) -> tuple[str, ...]:
    """Operators that a generated kernel's name lists, in its order, without repeats; empty for other kernels."""
    if not _GENERATED.match(name):
        return ()
    found = _TRITON.match(name)
    rest = "_" + found["body"] if found else ""
    words: list[str] = []
    while rest:
        rest = rest[1:]
        word = next((c for c in _COMPOUND if rest == c or rest.startswith(c + "_")), "")
        if not word:
            # A leading underscore belongs to the word: `_foo` is an operator of that name.
            cut = rest.find("_", 1)
            word = rest if cut < 0 else rest[:cut]
        if word and word not in words:
            words.append(word)
        rest = rest[len(word) :]
    return tuple(words)


@lru_cache(maxsize=_MANY)
def operator_words(operator: str) -> frozenset[str]:
    """Names under which a generated kernel may list an operator: itself and what it is made of.

    `aten::mul_` -> {mul}; `aten::copy_` -> {copy, _to_copy, clone, ...}; "" -> the empty set.
    """
    word = operator.rsplit("::", 1)[-1].split(".", 1)[0]
    if not word or " " in word or ":" in word:
        return frozenset()
    plain = word[:-1] if word.endswith("_") and len(word) > 1 else word
    return frozenset((word, plain, *_DECOMPOSED.get(plain, ())))


def _generated_family(text: str, fused: tuple[str, ...]) -> str:
    # Templates (`tem`, or the operator right after the prefix) are matrix products that the compiler chose over cuBLAS.
    template = text.startswith(("triton_tem_", "triton_mm", "triton_bmm", "triton_addmm", "triton_convolution"))
    if template:
        return "convolution" if "conv" in text else "attention" if "attention" in text else "gemm"
    return "triton" if fused else family(text)


def _plain(name: str) -> str:
    """A C++ kernel name as its function and the words of its template that say what it computes."""
    text = name.replace("(anonymous namespace)::", "")
    text = text.removeprefix("void ").removeprefix("int ").removeprefix("auto ")
    opening = text.find("<")
    bracket = text.find("(")
    if opening < 0 or 0 <= bracket < opening:
        return text[:bracket] if bracket > 0 else text
    head = text[:opening].rsplit("::", 1)[-1]
    template = text[opening : _closing(text, opening)]
    words: list[str] = []
    for word in _WORD.findall(template):
        if word not in _NOISE and word not in words:
            words.append(word)
    return f"{head}<{' '.join(words)}>" if words else head


def _closing(text: str, opening: int) -> int:
    """Position after the bracket that closes the one at `opening`; the end of the text if none does."""
    depth = 0
    for at in range(opening, len(text)):
        if text[at] == "<":
            depth += 1
        elif text[at] == ">" and text[at - 1] != "-":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)
