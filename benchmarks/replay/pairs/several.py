"""Programs with several faults: the step of each does what several pairs do, one after the other.

Each fix mends one of them, so that the order of the fixes can be told. No two parts have a rule in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from benchmarks.replay.pairs.base import Pair, Place, Step

__all__ = ["Several", "several"]

_PARTS = {
    "serving": ("item_each_layer-small", "weights_cast-small", "rms_norm-small", "small_copies", "mask_rebuilt-small"),
    "attending": ("attention-medium", "views_per_head", "noise_on_host", "sync_each_layer-small", "clone"),
    "images": ("channels_last", "boolean_index", "contiguous", "gelu-small", "pageable-medium"),
    "loops": ("one_at_a_time-large", "python-small", "inference_mode-small", "constant_from_list", "layer_norm-small"),
    "kernels": ("misaligned", "sdpa_math", "gelu-large", "growing_cat-large", "masked_fill"),
    "training": ("adamw_loop-small", "clip_loop", "zero_grad-small", "bias_before_norm", "loss_item-small"),
    "reductions": ("average_loop", "few_blocks", "cast_again", "event_each_step", "bias_apart"),
    "waits": ("cpu_each_layer", "sync_each_layer-medium", "result_to_host", "empty_cache", "attention-small"),
    "data": ("sleep-short", "data_loader", "autocast_again", "item_each_layer-large", "rms_norm-large"),
    "experts": (
        "experts_loop-small",
        "pageable-tiny",
        "item_each_layer-small",
        "attention-small",
        "weights_cast-large",
    ),
}


@dataclass(frozen=True)
class Several:
    """A program with several faults.

    Attributes:
        fixes: for each fault a pair, whose fixed program mends this fault alone; the slow program is the same in all.
    """

    name: str
    fixes: tuple[Pair, ...]

    @property
    def needs_cuda(self) -> bool:
        return any(fix.needs_cuda for fix in self.fixes)


def several(pairs: Sequence[Pair]) -> tuple[Several, ...]:
    """All programs with several faults."""
    named = {pair.name: pair for pair in pairs}
    return tuple(Several(name, _fixes(name, [named[part] for part in parts])) for name, parts in _PARTS.items())


def _fixes(name: str, parts: list[Pair]) -> tuple[Pair, ...]:
    return tuple(
        replace(
            part,
            name=f"several-{name}-{part.name}",
            build=partial(_one_after_the_other, tuple(parts), index),
            options=("shapes",),
            active=4,
        )
        for index, part in enumerate(parts)
    )


def _one_after_the_other(parts: tuple[Pair, ...], mended: int, at: Place, fixed: bool) -> Step:
    steps = [part.build(at, fixed and index == mended) for index, part in enumerate(parts)]

    def step() -> torch.Tensor:
        results = [each() for each in steps]
        return results[mended]

    return step
