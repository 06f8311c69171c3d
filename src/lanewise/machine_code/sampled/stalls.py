"""Lays samples on instructions and source lines: where warps wait, and what for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from lanewise.errors import LanewiseError
from lanewise.machine_code.cubins import Kernel, kernels_in
from lanewise.machine_code.disassembly import Instruction, Place
from lanewise.machine_code.limiter import Limiter, limits_of
from lanewise.machine_code.sampled.samples import KernelSamples, Samples
from lanewise.machine_code.stall_reasons import NOT_ISSUED, expected_stalls, stall_called, top_stall

__all__ = ["Sampled", "Stalls", "stalls_of"]

At = TypeVar("At", Instruction, Place)


@dataclass(frozen=True, slots=True)
class Sampled(Generic[At]):
    """What was sampled at one place.

    Attributes:
        at: an instruction, or a source line. number: samples. reasons: by NVIDIA's short names, the most first.
    """

    at: At
    number: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Stalls:
    """What the warps of a kernel waited for.

    Attributes:
        name: of the kernel, as traces call it. share: of all samples of the run. number: samples.
        reasons: by NVIDIA's short names, the most first.
        lines: source lines, the most sampled first; none where the code is unknown or has no lines.
        instructions: those that were sampled, in order of the code; none where it is unknown.
        missing: why the code is not known, "" if it is.
        kernel: the code. limits: what limits it by its code, the most important first; none where that is unknown.
    """

    name: str
    share: float
    number: int
    reasons: Mapping[str, int]
    lines: tuple[Sampled[Place], ...]
    instructions: tuple[Sampled[Instruction], ...]
    missing: str
    kernel: Kernel | None
    limits: tuple[Limiter, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether its warps wait for what its code says that it is limited by."""
        return top_stall(self.reasons) in expected_stalls(self.limits)


def stalls_of(samples: Samples) -> list[Stalls]:
    """Of each kernel, the most sampled first."""
    totals = [sum(_counts(one).values()) for one in samples.kernels]
    every = sum(totals) or 1
    found = [_of_kernel(one, total / every) for one, total in zip(samples.kernels, totals, strict=True) if total]
    return sorted(found, key=lambda one: -one.number)


def _code_of(samples: KernelSamples) -> tuple[Kernel | None, str]:
    """The code of a sampled kernel, or why there is none."""
    if not samples.code:
        return None, "its code is in no compiler's cache and no library of the program's own"
    try:
        named = [one for one in kernels_in(Path(samples.code)) if one.code.name == samples.name]
    except LanewiseError as error:
        return None, str(error)
    return (named[0], "") if named else (None, "the file of its code holds another kernel now")


def _counts(samples: KernelSamples) -> Counter[tuple[int, str]]:
    """By offset and reason. What is counted again because nobody could issue is left out."""
    found = Counter[tuple[int, str]]()
    for offset, reason, number in samples.samples:
        if not reason.endswith(NOT_ISSUED):
            found[offset, stall_called(reason)] += number
    return found


def _of_kernel(samples: KernelSamples, share: float) -> Stalls:
    counts = _counts(samples)
    kernel, missing = _code_of(samples)
    by_offset: dict[int, Counter[str]] = {}
    reasons, by_place = Counter[str](), dict[Place, Counter[str]]()
    for (offset, reason), number in counts.items():
        reasons[reason] += number
        by_offset.setdefault(offset, Counter())[reason] += number
    instructions: list[Sampled[Instruction]] = []
    for one in kernel.code.instructions if kernel is not None else ():
        if one.address in by_offset:
            instructions.append(_sampled(one, by_offset[one.address]))
            if one.place is not None:
                by_place.setdefault(one.place, Counter()).update(by_offset[one.address])
    lines = sorted((_sampled(place, of) for place, of in by_place.items()), key=lambda one: -one.number)
    return Stalls(
        samples.called,
        share,
        reasons.total(),
        dict(reasons.most_common()),
        tuple(lines),
        tuple(instructions),
        missing,
        kernel,
        limits_of(kernel).limits if kernel is not None else (),
    )


def _sampled(at: At, reasons: Counter[str]) -> Sampled[At]:
    return Sampled(at, reasons.total(), dict(reasons.most_common()))
