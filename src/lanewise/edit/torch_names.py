"""What functions, methods and layers of torch give back."""

from __future__ import annotations

__all__ = [
    "BLOCKS", "DTYPES", "ELEMENTWISE", "JUMPS", "KEEP_RANK", "LAYERS", "LOSSES", "MAKERS", "METHODS", "POINTWISE",
    "RANDOM", "REDUCTIONS", "WHOLE", "words",
]  # fmt: skip

_FUNCTIONAL = "torch.nn.functional"


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _named(text: str, head: str = "torch") -> frozenset[str]:
    return frozenset(f"{head}.{word}" for word in text.split())


MAKERS = _named(
    "randn rand zeros ones empty full eye arange linspace tensor as_tensor from_numpy randint randperm triu tril "
    "zeros_like ones_like empty_like rand_like randn_like full_like"
)
"""Functions that make a tensor from sizes or values."""

_POINTWISE = (
    "sin cos tan tanh sigmoid relu gelu silu exp expm1 log log1p log2 sqrt rsqrt abs neg square pow clamp clamp_min "
    "clamp_max add mul sub div erf softplus mish leaky_relu elu selu hardtanh reciprocal sinh cosh atan sign floor ceil "
    "round where maximum minimum lerp addcmul addcdiv logsigmoid relu6 hardswish hardsigmoid softsign tanhshrink"
)
POINTWISE = words(_POINTWISE)
"""Names of operations that compute every element by itself; functions and methods."""

ELEMENTWISE = (
    _named(_POINTWISE)
    | _named(_POINTWISE, _FUNCTIONAL)
    | _named(
        "logical_and logical_or logical_not eq ne lt le gt ge isnan isinf isfinite remainder fmod softmax log_softmax clone"
    )
)
"""Functions that give a tensor of the shape that their arguments are broadcast to."""

_KEEP = (
    "Linear ReLU ReLU6 GELU SiLU Tanh Sigmoid LeakyReLU ELU Softmax LogSoftmax LayerNorm RMSNorm BatchNorm1d BatchNorm2d "
    "GroupNorm InstanceNorm2d Conv1d Conv2d Conv3d MaxPool2d AvgPool2d AdaptiveAvgPool2d AdaptiveMaxPool2d Dropout "
    "Dropout2d Upsample ZeroPad2d ConvTranspose2d Hardswish Softplus Identity Mish PReLU"
)
LAYERS = _named(
    f"{_KEEP} Flatten Embedding CrossEntropyLoss MSELoss NLLLoss L1Loss BCELoss BCEWithLogitsLoss", "torch.nn"
)
"""Layers that give one tensor."""

KEEP_RANK = (
    ELEMENTWISE
    | _named(_KEEP, "torch.nn")
    | _named(
        "softmax log_softmax dropout layer_norm rms_norm group_norm batch_norm linear conv2d max_pool2d avg_pool2d "
        "normalize pad interpolate adaptive_avg_pool2d",
        _FUNCTIONAL,
    )
)
"""Functions and layers that give a tensor of the rank of their first argument."""

REDUCTIONS = _named(
    "sum mean std var norm prod amax amin argmax argmin logsumexp cumsum cumprod matmul bmm mm einsum dot outer cat concat "
    "stack hstack vstack flatten reshape transpose permute squeeze unsqueeze gather index_select masked_select argsort "
    "bincount trace diag diagonal flip roll addmm baddbmm det inverse nonzero all any count_nonzero"
) | _named(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy one_hot embedding "
    "binary_cross_entropy_with_logits kl_div cosine_similarity scaled_dot_product_attention",
    _FUNCTIONAL,
)
"""Functions that give one tensor, of whatever rank."""

WHOLE = words("sum mean std var norm prod amax amin argmax argmin all any count_nonzero")
"""Functions and methods that give one value where no dimension is named."""

_LOSSES = "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div"
LOSSES = _named(f"{_LOSSES} binary_cross_entropy_with_logits", _FUNCTIONAL) | _named(
    "CrossEntropyLoss MSELoss NLLLoss L1Loss BCELoss BCEWithLogitsLoss", "torch.nn"
)
"""Functions and layers that give one value unless a `reduction` is named."""

JUMPS = words("floor ceil round sign trunc frac remainder fmod")
"""Operations in which a rounding before them may show as a whole step."""

METHODS = words(
    "cuda cpu contiguous detach clone transpose swapaxes requires_grad_ softmax log_softmax masked_fill flip roll cumsum "
    "pin_memory triu tril logical_not type_as"
)
"""Methods that give a tensor of the same rank."""

BLOCKS = words("chunk split unbind torch.chunk torch.split torch.unbind")
"""What gives a list of tensors."""

DTYPES = {
    **dict.fromkeys(_named("float float16 float32 float64 half bfloat16 double"), "float"),
    **dict.fromkeys(_named("int int8 int16 int32 int64 long short uint8"), "int"),
    "torch.bool": "bool",
}

RANDOM = words(
    "dropout alpha_dropout feature_dropout bernoulli multinomial normal poisson rrelu rand randn randint randperm "
    "rand_like randn_like randint_like dropout1d dropout2d dropout3d gumbel_softmax"
)
"""Functions that draw random numbers."""
