"""`torch.compile` in the modes that can be compared, on the whole program and on its repeated blocks."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate, Several, Variant
from lanewise.fix.candidates.predictions import compiled_regions, fewer_operators
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors
from lanewise.fix.typed_torch import torch
from lanewise.fix.work.worklist import WorkList

__all__ = ["MODES", "candidates", "compiler"]

_REWRITTEN = "rewritten"
"""In the place of a mode: the compiler's default, with the passes of `lanewise.fix.rewrites`."""

MODES = {
    "compile": ("default", "torch.compile in its default mode: pointwise work and reductions are fused"),
    "compile-rewritten": (
        _REWRITTEN,
        "torch.compile, with library calls replaced where that is measured to be faster: single-precision products on the "
        "tensor cores as exact as without, convolutions in channels-last memory, masks as fused attention reads them",
    ),
    "compile-reduce-overhead": ("reduce-overhead", "torch.compile with CUDA graphs: the launches of a call become one"),
    "compile-max-autotune": (
        "max-autotune-no-cudagraphs",
        "torch.compile that times several kernels for every product and keeps the fastest",
    ),
}
"""By candidate: the compiler's name of the mode, and what it does."""

_SAME_KERNELS = 0.5
"""How long it takes to compile again what generates nearly the same kernels, as a share of the first time: 0.22 to 0.71,
with a median of 0.44, for nine models on an H200."""

_BIG_ENOUGH_SMS = 68

_REFUSES = ("backward twice",)
"""Compiled code gives the memory of a backward pass away; a second one raises an error that names the setting."""


def candidates(subject: Subject, work: WorkList) -> list[Candidate]:
    """The modes that make sense for the subject's device and its operators."""
    made: list[Candidate] = []
    usable = _modes_for(subject, work)
    hopeless = "the program is compiled already" if _is_compiled(subject) else ""
    for name, (mode, what) in MODES.items():
        if mode not in usable:
            continue
        made.append(
            Candidate(
                name,
                "compile",
                "training step" if subject.kind == "step" else "whole",
                what,
                lambda subject, mode=mode: ForwardPatch(subject.entry, compiler(subject, mode)),
                predictions=(compiled_regions(), fewer_operators()),
                compiles=True,
                engine=True,
                alternative=mode != _REWRITTEN,
                hopeless=hopeless,
                owed=mode == "default",
                again=_SAME_KERNELS if mode in (_REWRITTEN, "reduce-overhead") else 1.0,
                replaces=mode == _REWRITTEN,
                refuses=_REFUSES,
            )
        )
    if blocks := repeated_blocks(subject):
        made.insert(
            1,
            Candidate(
                "compile-blocks",
                "compile",
                f"{len(blocks)} times {type(blocks[0]).__name__}",
                "torch.compile on the repeated block only: one compilation serves all of them",
                lambda subject: _blocks(subject),
                predictions=(compiled_regions(), fewer_operators()),
                compiles=True,
                engine=True,
                hopeless=hopeless,
                refuses=_REFUSES,
            ),
        )
    return made


def _modes_for(subject: Subject, work: WorkList) -> list[str]:
    """The compiler's modes that make sense for the subject's device and its operators."""
    modes = ["default"]
    if subject.cuda:
        modes += [_REWRITTEN] if _may_be_rewritten(subject, work) else []
        modes += ["reduce-overhead", *(["max-autotune-no-cudagraphs"] if _autotunes(subject) else [])]
    return modes


def _may_be_rewritten(subject: Subject, work: WorkList) -> bool:
    """Whether there is anything in it that the rewrites look at: attention, and in single precision products and
    convolutions."""
    if importlib.util.find_spec("triton") is None:
        return False
    if any("attention" in name or "softmax" in name for name in work.counts):
        return True
    return subject.single_precision() and any(work.counts[name] for name in ("mm", "addmm", "convolution"))


def _is_compiled(subject: Subject) -> bool:
    """Whether torch.compile has been applied to the whole of it, in a copy or in place."""
    module, function = subject.module, getattr(subject.entry, "original", None)
    if module is None:
        return hasattr(function, "_torchdynamo_orig_callable")
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def repeated_blocks(subject: Subject) -> list[Any]:
    """The largest set of modules of one class that follow each other in a list; empty if there is none."""
    best: list[Any] = []
    for module in subject.every_module():
        if not isinstance(module, torch.nn.ModuleList | torch.nn.Sequential):
            continue
        children = list(module.children())
        has_parts = children and next(iter(children[0].children()), None) is not None
        if (
            len(children) >= 2
            and has_parts
            and len({type(child) for child in children}) == 1
            and len(children) > len(best)
        ):
            best = children
    return best


def _autotunes(subject: Subject) -> bool:
    """Small cards are excluded by the compiler itself; on the host there is nothing to tune for single products."""
    if not subject.cuda:
        return False
    return torch.cuda.get_device_properties(subject.device).multi_processor_count >= _BIG_ENOUGH_SMS


def _blocks(subject: Subject) -> Variant:
    return Several([ForwardPatch(block, compiler(subject, "default")) for block in repeated_blocks(subject)])


def compiler(subject: Subject, mode: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles a callable in a mode; the same one is compiled once, whoever asks."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        key = (mode, subject.random, getattr(original, "__func__", original), getattr(original, "__self__", None))
        if key not in subject.compiled:
            subject.compiled[key] = _compiled(subject, original, mode)
        return subject.compiled[key]

    return make


def _options(mode: str) -> dict[str, Any]:
    if mode == _REWRITTEN:
        # Its passes derive from a class of torch's compiler, which takes a second to import.
        from lanewise.fix.rewrites.graph_passes import passes

        return passes()
    known = torch._inductor.list_mode_options  # pyright: ignore[reportPrivateUsage]
    return dict(known(mode)) if mode != "default" else {}


def _compiled(subject: Subject, original: Callable[..., Any], mode: str) -> Callable[..., Any]:
    options = _options(mode)
    if subject.random:
        # Random numbers as eager draws them; otherwise results could not be compared.
        options["fallback_random"] = True
    compiled = torch.compile(original, dynamic=False, options=options or None)
    if not options.get("triton.cudagraphs"):
        return compiled

    thread = threading.get_ident()

    def with_own_results(*args: Any, **kwargs: Any) -> Any:
        # The compiler's graphs belong to the thread in which they were captured.
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        # A replay writes where the last one did: what the caller holds would change.
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(lambda tensor: tensor.clone(), compiled(*args, **kwargs))

    return with_own_results
