"""What a kernel's name says about it: its family, and whether it used tensor cores.

Tokens and their readings come from trace-format section 10. A name that says nothing is family "other": never guessed.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["COMMUNICATION", "FAMILIES", "family", "short_name", "tensor_cores"]

FAMILIES: tuple[str, ...] = (
    "communication",
    "attention",
    "gemm",
    "gemm helper",
    "convolution",
    "layout",
    "normalisation",
    "softmax",
    "optimizer",
    "foreach",
    "reduction",
    "pointwise",
    "copy kernel",
    "embedding and indexing",
    "sort and scan",
    "random",
    "triton",
    "other",
)

COMMUNICATION = re.compile(
    r"nccl|rccl|xccl::|hccl::|\bhcom_|oneccl|msccl|deep_?ep::|nvshmem|rocshmem|ishmem|cross_device_(?:reduce|load|store)|"
    r"all_?reduce(?:_|kernel|fusion)|multimem_|all_gather_kernel|reduce_scatter_kernel|(?:all_?to_?all|moe_?a2a).*kernel|"
    # DeepEP without its outer name, PPLX, vLLM's and AMD's own all-reduces, symmetric memory.
    r"\binter_?node(?:_ll)?::|\bintra_?node::|pplx|a2a_(?:dispatch|combine)|(?:one|two)_shot_all|quick_?reduce|mscclpp|"
    r"symm_mem_",
    re.IGNORECASE,
)


def _lower_case(pattern: str) -> re.Pattern[str]:
    """The pattern for names in lower case, which is ten times faster than ignoring case; escapes such as `\\W` stay."""
    return re.compile(re.sub(r"\\.|[A-Z]", lambda part: part[0] if part[0][0] == "\\" else part[0].lower(), pattern))


# Ordered: the first pattern that matches decides.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, _lower_case(pattern))
    for name, pattern in (
        ("communication", COMMUNICATION.pattern),
        (
            "attention",
            r"flash_fwd|flash_bwd|flash_?attn|fmha|_sdpa_|attn_fwd|attn_bwd|attention|paged_attention|fwd_kernel_mla",
        ),
        ("layout", r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|transpose_?readWrite|batched_transpose|im2col|col2im"),
        ("gemm helper", r"splitK_?reduce|ReduceSplitK|cublasLt::epilogue|SplitKReduce"),
        (
            "convolution",
            r"convolve|conv2d|conv1d|conv3d|_conv_|dgrad|wgrad|fprop|cudnn::cnn|winograd|fft.*conv|gcgemm|"
            r"implicit_con|xdlops_conv|miopen.*conv|igemm_fwd|igemm_bwd|igemm_wrw|naive_conv|ConvBin",
        ),
        (
            "optimizer",
            r"FusedOptimizer|FusedAdam|fused_adam|FusedSgd|multi_tensor_apply_kernel.*(Adam|Sgd|Lamb)Functor",
        ),
        ("foreach", r"multi_tensor_apply"),
        (
            "gemm",
            r"nvjet|gemm|gemv|cutlass.*(sgemm|hgemm|tensorop)|ampere_|volta_|turing_|hopper_|xmma|Cijk_|"
            r"matmul|wmma|_mm_|dot_kernel|cublas",
        ),
        (
            "normalisation",
            r"layer_?norm|rms_?norm|batch_?norm|bn_fw|bn_bw|group_?norm|instance_norm|RowwiseMoments|"
            r"GammaBeta|cuCompute.*Grad",
        ),
        ("softmax", r"softmax"),
        ("triton", r"^triton_"),
        ("embedding and indexing", r"index|embedding|gather|scatter|masked_select|nonzero|take_kernel"),
        ("sort and scan", r"sort|scan|topk|cumsum|DeviceSelect|DevicePartition"),
        ("random", r"distribution|philox|random|dropout|bernoulli"),
        ("reduction", r"reduce_kernel|reduce|DeviceReduce|mean_kernel|norm_kernel"),
        (
            "copy kernel",
            r"direct_copy|copy_kernel|CatArray|batched_copy|bfloat16_copy|float_copy|convert_?kernel|memcpy|"
            r"LoadWithCast|fill_kernel|FillFunctor",
        ),
        (
            "pointwise",
            r"elementwise|pointwise|vectorized_|unrolled_|BinaryFunctor|UnaryFunctor|CUDAFunctor|AUnary|"
            r"BUnary",
        ),
    )
)

_NO_TENSOR = _lower_case(
    r"_ffma_|simt|ampere_sgemm|volta_sgemm|maxwell_|(^|_|\W)sgemm_|dgemm|gemv|gemmk1|implicit_convolve_sgemm|"
    r"wgrad_alg0_engine"
)
_TENSOR = _lower_case(
    r"nvjet|tensorop|s1688|s16816|s161616|h884|h16816|h1688|i8816|i16832|hmma|imma|wgmma|gmma|warpgroup|tensor16x8x8|"
    r"tf32|xdlops|mfma|_MI\d+x"
)
_MATRIX = _lower_case(r"gemm|gemv|conv|nvjet|xmma|cutlass|wgrad|dgrad|fprop|matmul|Cijk_")


# Functions that run whatever they are given: what they do stands among their template arguments.
_GENERIC = frozenset({"foreach", "reduction", "pointwise", "other"})

# Ranks of a job run the same kernels.
_REMEMBERED = 4096

# Namespaces that say nothing of what is in them, though they sound like it.
_NAMESPACES = re.compile(r"\bfbgemm\w*::")


@lru_cache(maxsize=_REMEMBERED)
def family(name: str) -> str:
    """Family of a kernel, one of FAMILIES: that of the function itself where its own name tells, and not that of a
    namespace, an argument or a template argument."""
    label = _first_match(_function(name).lower())
    return _first_match(_NAMESPACES.sub("", name).lower()) if label in _GENERIC else label


def _first_match(name: str) -> str:
    return next((label for label, pattern in _PATTERNS if pattern.search(name)), "other")


def _function(name: str) -> str:
    """A kernel's own name, without namespaces, arguments and template arguments."""
    text = _without_templates(_LEADING.sub("", name).replace("(anonymous namespace)::", ""))
    return text.split("(", 1)[0].split("<", 1)[0].rsplit("::", 1)[-1].strip()


def tensor_cores(name: str) -> bool | None:
    """Whether a matrix kernel used tensor cores; None for kernels that are no matrix work or whose name does not tell.

    `ffma` and `simt` decide before anything else: `xmma` is a generator, not evidence.
    """
    name = _NAMESPACES.sub("", name).lower()
    if not _MATRIX.search(name):
        return None
    if _NO_TENSOR.search(name):
        return False
    if _TENSOR.search(name):
        return True
    return None


_TEMPLATE = re.compile(r"<[^<>]*>")
_LEADING = re.compile(r"^(void|int|auto)\s+")


def _without_templates(text: str) -> str:
    previous = ""
    while previous != text:
        previous = text
        text = _TEMPLATE.sub("", text)
    return text


def short_name(name: str, limit: int = 72) -> str:
    """A kernel name that fits a table row: templates, arguments and the return type removed, the functor kept."""
    # Before anything is cut at a bracket: this one is part of a path, not the start of the arguments.
    text = _LEADING.sub("", name).replace("(anonymous namespace)::", "")
    functor = ""
    if "::" in text and "<" in text:
        found = re.search(r"(\w*(?:Functor|functor|_kernel_cuda|_kernel_impl|Ops?)\w*)", text[text.index("<") :])
        if found and found[1] not in text[: text.index("<")]:
            functor = found[1]
    text = _without_templates(text)
    text = text.split("(", 1)[0].split("<", 1)[0].strip() or name
    text = text.replace("at::native::", "")
    if functor:
        text = f"{text}<{functor}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
