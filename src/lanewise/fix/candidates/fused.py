"""Fused kernels of `lanewise.kernels`, and Liger's where it is installed, in place of single modules.

Which formula a module computes is found out by numbers, not by its name: a module with two linear layers, say, is run
on random inputs in double precision against each formula that such a module may stand for. What agrees is tried, and
then has to pass the same gates as everything else.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.candidates.predictions import kernel_named, operator_appears
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call
from lanewise.fix.torch_types import Module
from lanewise.fix.typed_torch import torch

__all__ = ["Match", "candidates", "match_module"]

functional: Any = torch_part("torch.nn.functional")

Fast = Callable[[Callable[..., Any]], Callable[..., Any]]

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


class Match(NamedTuple):
    """A module that one kernel can compute: which kernel, and its fast forward; and that by cuBLAS's own epilogue."""

    kernel: str
    module: Module
    fast: Fast
    epilogue: Fast | None = None


def candidates(subject: Subject) -> list[Candidate]:
    """One candidate per kernel, for all modules that it can compute; on a CUDA device with Triton only."""
    if not subject.cuda or importlib.util.find_spec("triton") is None:
        return []
    found: dict[str, list[Match]] = {}
    inside: set[int] = set()
    for module in subject.every_module():
        match = None if id(module) in inside else match_module(module)
        if match is not None:
            found.setdefault(match.kernel, []).append(match)
            inside.update(id(child) for child in module.modules())
    made = [
        _candidate(f"kernel-{name}", matches, _too_few_rows(subject, matches) if name == "mlp" else "")
        for name, matches in found.items()
    ]
    if importlib.util.find_spec("liger_kernel") is not None and (norms := found.get("rms_norm")):
        made.append(
            _candidate(
                "liger-rms-norm",
                [Match("liger", norm.module, _liger(norm.module, _eps_of(norm.module))) for norm in norms],
            )
        )
    if torch.cuda.get_device_capability(subject.device)[0] in _EPILOGUE_PAYS:
        ended = [Match("epilogue", m.module, m.epilogue) for m in found.get("mlp", []) if m.epilogue is not None]
        if ended:
            made.append(_candidate("addmm-activation", ended))
    return made


def match_module(module: Any) -> Match | None:
    """The kernel that computes what a module does; None if none is known. Run on a copy, on the host."""
    if isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm):
        return _own_norm(module)
    if (eps := _rms_eps(module)) is not None:
        return Match("rms_norm", module, _rms_norm(module, eps))
    linears = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
    others = [child for child in module.children() if not isinstance(child, torch.nn.Linear)]
    if any(True for child in others for _ in child.parameters()) or next(iter(module.buffers()), None) is not None:
        return None
    if len(list(module.parameters())) != sum(len(list(linear.parameters())) for linear in linears):
        return None
    if len(linears) == 2:
        return _two_layers(module, linears)
    return _gated(module, linears) if len(linears) == 3 else None


def _own_norm(module: Any) -> Match | None:
    """Of one of torch's norms, or of a class derived from it, which may turn its input around first."""
    width = module.normalized_shape
    if len(width) != 1:
        return None
    layer = isinstance(module, torch.nn.LayerNorm)
    function = torch.nn.functional.layer_norm if layer else torch.nn.functional.rms_norm

    def formula(twin: Any, x: Any) -> Any:
        return function(x, twin.normalized_shape, twin.weight, *([twin.bias] if layer else []), eps=twin.eps)

    if type(module) not in (torch.nn.LayerNorm, torch.nn.RMSNorm) and not _agrees(
        module, formula, width[0], roundoff=1e-5, shaken=True
    ):
        return None
    return (
        Match("layer_norm", module, _layer_norm(module))
        if layer
        else Match("rms_norm", module, _rms_norm(module, module.eps))
    )


def _too_few_rows(subject: Subject, matches: list[Match]) -> str:
    """Why the whole MLP in one kernel cannot pay in the recorded calls, "" if it may.

    A multiprocessor takes a block of rows through both layers, and reads all weights for it. Where there are fewer blocks
    than half of the multiprocessors, most of the card waits: measured on an H200, 0.2x of cuBLAS with 32 rows of 256/1024,
    1.9x with 8192 of 64/256.
    """
    rows = _rows(subject, [match.module for match in matches])
    sms = int(torch.cuda.get_device_properties(subject.device).multi_processor_count)
    if not rows or 2 * (max(rows) // _ROWS_A_BLOCK) >= sms:
        return ""
    blocks = -(-max(rows) // _ROWS_A_BLOCK)
    return f"{max(rows):,} rows are {blocks} blocks for {sms} multiprocessors: the whole MLP in one kernel needs more"


def _rows(subject: Subject, modules: list[Module]) -> list[int]:
    """Rows that reach the modules in the first recorded call; empty where that cannot be found out without a mark."""
    if subject.kind != "inference":
        return []
    seen: list[int] = []

    def see(_: Any, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], torch.Tensor) and args[0].dim():
            seen.append(args[0].numel() // max(1, args[0].shape[-1]))

    hooks = [module.register_forward_pre_hook(see) for module in modules]
    try:
        with torch.no_grad():
            subject.run(copy_call(subject.calls[0]))
    except Exception:  # the gates will say so
        seen.clear()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _candidate(name: str, matches: list[Match], hopeless: str = "") -> Candidate:
    kinds = sorted({type(match.module).__name__ for match in matches})
    kernels = _KERNELS[matches[0].kernel]
    return Candidate(
        name,
        "kernel",
        f"{len(matches)} times {', '.join(kinds)}",
        f"one fused kernel for each {' or '.join(kinds)}"
        if kernels
        else f"bias and activation in the epilogue of the first product of each {' or '.join(kinds)}",
        lambda _: Several([ForwardPatch(match.module, match.fast) for match in matches]),
        predictions=(
            kernel_named("the fused kernel runs", kernels) if kernels else operator_appears("_addmm_activation"),
        ),
        answers=("KER111", "LAU102", "KER102"),
        hopeless=hopeless,
    )


_ROWS_A_BLOCK = 64
"""Of the kernel's blocks for all widths but the largest, see `lanewise.kernels.gemm.fused_mlp.default_blocks`."""

# Where bias and activation in the product's own epilogue were measured to be faster: sm_90 and sm_100.
_EPILOGUE_PAYS = (9, 10)

# Names of the kernels in a trace, by the function that launches them; none is in the name of a kernel of torch.
_KERNELS = {
    "layer_norm": ("_norm_rows", "_norm_split"),
    "rms_norm": ("_norm_rows", "_norm_split"),
    "mlp": ("_mlp_resident", "_mlp_walk"),
    "gated_mlp": ("_skinny", "_tiles", "lanewise_chain"),
    "liger": ("_rms_norm_forward_kernel",),
    "epilogue": (),
}


_EPS_NAMES = ("eps", "variance_epsilon", "epsilon")


def _eps_of(module: Module) -> float | None:
    """What a norm adds to the mean square, under one of the names that libraries give it."""
    return next((getattr(module, name) for name in _EPS_NAMES if hasattr(module, name)), None)


def _rms_eps(module: Module) -> float | None:
    """The epsilon of a module that is a root-mean-square norm under another name; None for any other module."""
    parameters, eps = dict(module.named_parameters()), _eps_of(module)
    simple = next(iter(module.children()), None) is None and next(iter(module.buffers()), None) is None
    if not simple or list(parameters) != ["weight"] or not isinstance(eps, float):
        return None
    weight = parameters["weight"]

    def formula(twin: Any, x: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * twin.weight

    # Such norms are often computed in single precision whatever comes in.
    matches = weight.dim() == 1 and _agrees(module, formula, len(weight), roundoff=1e-5, shaken=True)
    return eps if matches else None


def _agrees(
    module: Module, formula: Callable[[Any, Any], Any], width: int, *, roundoff: float = 1e-9, shaken: bool = False
) -> bool:
    """Whether a copy of the module computes a formula, in double precision on the host.

    Args:
        roundoff: relative difference that is none. shaken: with other parameters than it has: a weight of ones hides how
            it enters.
    """
    try:
        twin = copy.deepcopy(module).to("cpu", torch.float64)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in twin.parameters() if shaken else ():
                parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
        # What takes images may look for its channels in their second place, what takes rows in their last.
        images = (1, width if width <= _WIDEST else 3, 1, width)
        rows_agree = _alike(twin, formula, (5, width), roundoff)
        return rows_agree is True and _alike(twin, formula, images, roundoff) is not False
    except Exception:
        return False


_WIDEST = 2048


def _alike(twin: Any, formula: Callable[[Any, Any], Any], shape: tuple[int, ...], roundoff: float) -> bool | None:
    """Whether it computes the formula for an input of a shape; None where it takes none of that shape."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    try:
        with torch.no_grad():
            found = twin(x)
    except Exception:
        return None
    # Training with dropout, say, does not agree with any formula.
    with torch.no_grad():
        expected = formula(twin, x)
    return (
        isinstance(found, torch.Tensor)
        and found.shape == expected.shape
        and torch.allclose(found, expected, rtol=roundoff, atol=roundoff * 1e-3)
    )


def _names(module: Module, linears: list[Any]) -> list[str]:
    return [name for name, child in module.named_children() if any(child is linear for linear in linears)]


def _two_layers(module: Module, linears: list[Any]) -> Match | None:
    first, second = _names(module, linears)
    if linears[0].out_features != linears[1].in_features:
        return None
    for activation, function in _ACTIVATIONS.items():

        def formula(twin: Any, x: Any, function: Any = function) -> Any:
            return getattr(twin, second)(function(getattr(twin, first)(x)))

        if _agrees(module, formula, linears[0].in_features):
            both = linears[0].bias is not None and linears[1].bias is not None
            ends = both and linears[0].weight.dtype.itemsize == 2 and activation in ("gelu_tanh", "relu")
            epilogue = _epilogue(module, first, second, gelu=activation == "gelu_tanh") if ends else None
            return Match("mlp", module, _mlp(module, first, second, activation), epilogue)
    return None


def _gated(module: Module, linears: list[Any]) -> Match | None:
    if any(linear.bias is not None for linear in linears):
        return None
    names = _names(module, linears)
    by_name = dict(zip(names, linears, strict=True))
    for down in names:
        gate_up = [name for name in names if name != down]
        for gate, up in (gate_up, gate_up[::-1]):
            for activation in ("silu", "gelu", "gelu_tanh"):
                function = _ACTIVATIONS[activation]

                def formula(twin: Any, x: Any, g: str = gate, u: str = up, d: str = down, f: Any = function) -> Any:
                    return getattr(twin, d)(f(getattr(twin, g)(x)) * getattr(twin, u)(x))

                if _agrees(module, formula, by_name[gate].in_features):
                    return Match("gated_mlp", module, _gated_mlp(module, gate, up, down, activation))
    return None


def _layer_norm(module: Any) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from lanewise.kernels import layer_norm

        def forward(x: Any) -> Any:
            return layer_norm(x, module.weight, module.bias, module.eps)

        return forward

    return make


def _rms_norm(module: Any, epsilon: float | None) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from lanewise.kernels import rms_norm

        def forward(x: Any) -> Any:
            eps = epsilon if epsilon is not None else torch.finfo(x.dtype).eps
            return rms_norm(x, module.weight, eps)

        return forward

    return make


def _mlp(module: Module, first: str, second: str, activation: str) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from lanewise.kernels import mlp

        def forward(x: Any) -> Any:
            up, down = getattr(module, first), getattr(module, second)
            return mlp(x, up.weight, up.bias, down.weight, down.bias, activation)

        return forward

    return make


def _epilogue(module: Module, first: str, second: str, *, gelu: bool) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        def forward(x: Any) -> Any:
            up, down = getattr(module, first), getattr(module, second)
            rows = x.reshape(-1, x.shape[-1])
            # On a card its GELU is the one by tanh; it has no gradient.
            fused = torch._addmm_activation  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
            inner = fused(up.bias, rows, up.weight.t(), use_gelu=gelu)
            return functional.linear(inner, down.weight, down.bias).view(*x.shape[:-1], -1)

        return forward

    return make


def _gated_mlp(module: Module, gate: str, up: str, down: str, activation: str) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from lanewise.kernels import gated_linear

        def forward(x: Any) -> Any:
            inner = gated_linear(x, getattr(module, gate).weight, getattr(module, up).weight, activation)
            return functional.linear(inner, getattr(module, down).weight)

        return forward

    return make


def _liger(module: Module, epsilon: float | None) -> Fast:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        liger: Any = torch_part("liger_kernel.transformers.functional")

        def forward(x: Any) -> Any:
            eps = epsilon if epsilon is not None else torch.finfo(x.dtype).eps
            return liger.liger_rms_norm(x, module.weight, eps)

        return forward

    return make
