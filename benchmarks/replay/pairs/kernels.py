"""Programs whose device work has a faster form."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Pair, Place, Step, frozen, linears
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["PAIRS"]

Function: TypeAlias = Callable[..., torch.Tensor]

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def _attention(at: Place, fixed: bool, *, batch: int, heads: int, length: int, layers: int) -> Step:
    shape = (at.n(batch, 2), at.n(heads, 2), at.n(length), 64)
    q, k, v = (at.randn(*shape, dtype=BF16) for _ in range(3))
    hidden = torch.ones(shape[2], shape[2], dtype=torch.bool, device=at.device).triu(1)

    def by_hand(q: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(64)
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v

    def step() -> torch.Tensor:
        y = q
        for _ in range(layers):
            y = F.scaled_dot_product_attention(y, k, v, is_causal=True) if fixed else by_hand(y)
        return y

    return step


def _math_attention(at: Place, fixed: bool, *, batch: int, heads: int, length: int) -> Step:
    q, k, v = (at.randn(at.n(batch, 2), at.n(heads, 2), at.n(length), 64, dtype=BF16) for _ in range(3))

    def step() -> torch.Tensor:
        if fixed:
            return F.scaled_dot_product_attention(q, k, v)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v)

    return step


def _repeated(
    at: Place,
    fixed: bool,
    *,
    one: Function,
    whole: Function,
    rows: int,
    width: int,
    layers: int,
    dtype: torch.dtype = F32,
) -> Step:
    """A function between linear layers, spelled out or as one operator."""
    stack = linears(at, at.n(layers, 2), at.n(width), dtype)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=dtype)
    weight, bias = (at.randn(at.n(width), dtype=dtype) for _ in range(2))
    function = whole if fixed else one

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = function(layer(y), weight, bias)
        return y

    return step


def _layer_norm_one(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _rms_norm_one(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def _gelu_one(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _softmax_one(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _chain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x * weight + bias)
    y = y * torch.sigmoid(y) - 0.1 * x
    return torch.clamp(y, -2.0, 2.0) + torch.sin(y) * 0.5


def _compiled(function: Function) -> Function:
    """Compiled when it is first called: to compile touches the device, which the parent of all pairs must not."""
    made: list[Function] = []

    def call(*arguments: torch.Tensor) -> torch.Tensor:
        if not made:
            made.append(torch.compile(function, dynamic=False))
        return made[0](*arguments)

    return call


def _bias_apart(at: Place, fixed: bool, *, rows: int, width: int, layers: int) -> Step:
    stack = linears(at, at.n(layers, 2), at.n(width), BF16)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = F.linear(y, layer.weight, layer.bias) if fixed else y @ layer.weight.t() + layer.bias
        return y

    return step


def _products(at: Place, fixed: bool, *, width: int, rows: int, layers: int, low: bool = False) -> Step:
    dtype = BF16 if low and fixed else F32
    stack = linears(at, at.n(layers, 2), at.n(width), dtype)
    x = at.randn(at.n(rows, 4), at.n(width), dtype=dtype)

    def step() -> torch.Tensor:
        y = x
        for layer in stack:
            y = torch.relu(layer(y))
        return y

    return step


def _tf32(fixed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = fixed


def _convolutions(at: Place, fixed: bool, *, channels: int, size: int, dtype: torch.dtype = F16) -> Step:
    c = at.n(channels, 8)
    layers = [part for _ in range(6) for part in (nn.Conv2d(c, c, 3, padding=1), nn.ReLU())]
    model = frozen(nn.Sequential(*layers), at, dtype)
    x = at.randn(at.n(32, 2), c, at.n(size, 8), at.n(size, 8), dtype=dtype)
    if fixed:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    return lambda: model(x)


def _bias_before_norm(at: Place, fixed: bool, *, channels: int, size: int) -> Step:
    c = at.n(channels, 8)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Conv2d(c, c, 3, padding=1, bias=not fixed), nn.BatchNorm2d(c), nn.ReLU()]
    model = nn.Sequential(*layers).to(at.device, memory_format=torch.channels_last).requires_grad_(False)
    x = at.randn(at.n(32, 4), c, at.n(size, 8), at.n(size, 8)).to(memory_format=torch.channels_last)

    return lambda: model(x)


def _autotuned(fixed: bool) -> None:
    torch.backends.cudnn.benchmark = fixed


def _misaligned(at: Place, fixed: bool, *, rows: int, width: int, words: int) -> Step:
    wide = at.n(words, 33)
    weight = at.randn(at.n(width), wide, dtype=BF16) / at.n(width) ** 0.5
    x = at.randn(at.n(rows, 4), at.n(width), dtype=BF16)
    if fixed:
        weight = F.pad(weight, (0, -wide % 64))

    def step() -> torch.Tensor:
        return (x @ weight)[:, :wide].sum(dim=1, dtype=F32)

    return step


def _one_at_a_time(at: Place, fixed: bool, *, samples: int, rows: int, width: int) -> Step:
    weight = at.randn(at.n(width), at.n(width), dtype=BF16) / at.n(width) ** 0.5
    x = at.randn(at.n(samples, 3), at.n(rows), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        if fixed:
            return torch.relu(x @ weight)
        return torch.stack([torch.relu(sample @ weight) for sample in x])

    return step


def _experts(at: Place, fixed: bool, *, experts: int, rows: int, width: int) -> Step:
    weights = [at.randn(at.n(width), at.n(width), dtype=BF16) / at.n(width) ** 0.5 for _ in range(at.n(experts, 3))]
    together = torch.stack(weights)
    x = at.randn(len(weights), at.n(rows), at.n(width), dtype=BF16)

    def step() -> torch.Tensor:
        if fixed:
            return torch.bmm(x, together)
        return torch.stack([x[k] @ weight for k, weight in enumerate(weights)])

    return step


def _few_blocks(at: Place, fixed: bool, *, columns: int, rows: int) -> Step:
    """A running sum along few long rows fills few multiprocessors; along many short ones, then their sums, all of them."""
    x = torch.rand(at.n(rows, 2), at.n(columns, 64), device=at.device)
    parts = at.n(256, 4)

    def step() -> torch.Tensor:
        if not fixed:
            return torch.cumsum(x, dim=1)
        inner = torch.cumsum(x.view(x.shape[0], parts, -1), dim=2)
        before = torch.cumsum(inner[:, :, -1], dim=1) - inner[:, :, -1]
        return (inner + before.unsqueeze(2)).view_as(x)

    return step


_SDPA = {
    "fix": "product, mask, softmax, product as scaled_dot_product_attention",
    "change": "merge the operations into one",
    "codes": ("KER109",),
    "tolerance": 2e-2,
}
_FUSED = {
    "fix": "the chain compiled with torch.compile",
    "change": "merge the operations into one",
    "codes": ("LAU102",),
    "tolerance": 2e-2,
    "compiles": True,
}
_TF32 = {
    "fix": "TF32 for matrix products",
    "change": "rescale the products",
    "codes": ("KER104",),
    "setting": _tf32,
    "tolerance": 1e-2,
}
_NORM = {"change": "merge the operations into one", "tolerance": 2e-2}
_chain_fused = _compiled(_chain)


def _sizes(name: str, one: Function, whole: Function, fix: str, code: str) -> list[Pair]:
    build = partial(_repeated, one=one, whole=whole)
    return [
        Pair(f"{name}-small", partial(build, rows=64, width=512, layers=8), fix=fix, codes=(code,), **_NORM),
        Pair(
            f"{name}-large",
            partial(build, rows=16384, width=2048, layers=4, dtype=BF16),
            fix=fix,
            codes=(code,),
            **_NORM,
        ),
    ]


PAIRS = [
    Pair("attention-large", partial(_attention, batch=8, heads=16, length=2048, layers=1), **_SDPA),
    Pair(
        "attention-medium",
        partial(_attention, batch=4, heads=8, length=512, layers=6),
        **_SDPA,
        options=("shapes", "stack"),
    ),
    Pair(
        "attention-small",
        partial(_attention, batch=1, heads=4, length=64, layers=8),
        **_SDPA,
        options=("shapes", "full"),
    ),
    Pair(
        "sdpa_math",
        partial(_math_attention, batch=8, heads=16, length=1024),
        fix="the math backend no longer forced",
        change="merge the operations into one",
        codes=("KER108",),
        tolerance=2e-2,
    ),
    Pair(
        "chain-large",
        partial(_repeated, one=_chain, whole=_chain_fused, rows=8192, width=2048, layers=2),
        **_FUSED,
        options=("shapes", "stack"),
    ),
    Pair("chain-small", partial(_repeated, one=_chain, whole=_chain_fused, rows=64, width=256, layers=6), **_FUSED),
    *_sizes("layer_norm", _layer_norm_one, _layer_norm, "normalisation spelled out as F.layer_norm", "KER111"),
    *_sizes("rms_norm", _rms_norm_one, _rms_norm, "normalisation spelled out as F.rms_norm", "KER111"),
    *_sizes("gelu", _gelu_one, _gelu, "GELU spelled out as F.gelu(approximate='tanh')", "LAU102"),
    Pair(
        "softmax",
        partial(_repeated, one=_softmax_one, whole=_softmax, rows=8192, width=4096, layers=2),
        fix="softmax spelled out as torch.softmax",
        codes=("LAU102",),
        **_NORM,
    ),
    Pair(
        "bias_apart",
        partial(_bias_apart, rows=8192, width=1024, layers=8),
        fix="product, then bias as F.linear",
        change="merge the operations into one",
        codes=("LAU102",),
        tolerance=2e-2,
    ),
    Pair("tf32-large", partial(_products, width=4096, rows=4096, layers=3), **_TF32),
    Pair(
        "tf32-small",
        partial(_products, width=256, rows=64, layers=16),
        **_TF32,
        nothing="the device waits for the host, faster products or not",
    ),
    Pair(
        "bf16-large",
        partial(_products, width=4096, rows=4096, layers=3, low=True),
        fix="model and input in bfloat16",
        change="rescale the products and pointwise operations",
        codes=("KER104",),
        tolerance=3e-2,
    ),
    Pair(
        "channels_last",
        partial(_convolutions, channels=128, size=56),
        fix="channels_last",
        change="remove the conversions",
        codes=("KER107",),
        tolerance=2e-2,
        options=("shapes", "stack"),
    ),
    Pair(
        "bias_before_norm",
        partial(_bias_before_norm, channels=128, size=56),
        fix="bias of convolutions left out before batch normalisation",
        change="remove the additions",
        codes=("KER112",),
        tolerance=None,
    ),
    Pair(
        "cudnn_benchmark",
        partial(_convolutions, channels=96, size=64, dtype=F32),
        fix="torch.backends.cudnn.benchmark = True",
        change="rescale the convolutions",
        codes=("KER113", "KER107"),
        setting=_autotuned,
        tolerance=1e-2,
    ),
    Pair(
        "misaligned",
        partial(_misaligned, rows=2048, width=1024, words=50257),
        fix="50257 columns padded to a multiple of 64",
        change="rescale the product",
        codes=("KER105",),
        tolerance=2e-2,
    ),
    Pair(
        "one_at_a_time-large",
        partial(_one_at_a_time, samples=32, rows=256, width=2048),
        fix="a loop over samples as one product",
        change="merge the operations",
        codes=("LAU103", "KER106"),
        tolerance=2e-2,
    ),
    Pair(
        "experts_loop-small",
        partial(_experts, experts=16, rows=64, width=256),
        fix="a loop over matrices as bmm",
        change="merge the operations",
        codes=("LAU103",),
        tolerance=2e-2,
        options=("shapes", "stack"),
    ),
    Pair(
        "few_blocks",
        partial(_few_blocks, columns=1 << 20, rows=4),
        fix="four running sums over a million elements cut into 1024 short ones",
        change="rescale the kernel, add two",
        codes=("KER106",),
    ),
]
