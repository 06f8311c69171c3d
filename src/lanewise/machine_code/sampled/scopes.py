"""Reads how long the warps of Triton kernels were in their scopes, as Proton writes it, and adds it up.

Proton writes events of Chrome's trace format: the scope is the name, the kernel the category, `pid` ends with the block
(`row_sums Core7 CTA3`), `tid` begins with the warp (`warp 2 (line 0)`), and a microsecond stands for 1,000 clocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from lanewise.errors import InputError

__all__ = ["ScopeTime", "ScopedKernel", "Span", "is_scopes", "read_scopes", "scoped_kernels"]

_ENDING = ".scopes.json"
_CLOCKS = 1000.0
_BLOCK = re.compile(r" Core(\d+) CTA(\d+)$")
_WARP = re.compile(r"^warp (\d+)\b")


class _Event(msgspec.Struct, frozen=True):
    name: str = ""
    cat: str = ""
    ph: str = ""
    pid: str | int = ""
    tid: str | int = ""
    ts: float = 0.0
    dur: float = 0.0


class _File(msgspec.Struct, frozen=True):
    events: list[_Event] = msgspec.field(name="traceEvents")


@dataclass(frozen=True, slots=True)
class Span:
    """A warp in a scope once. Names are untrusted; begin and length in clocks of its multiprocessor."""

    kernel: str
    block: int
    warp: int
    scope: str
    begin: float
    clocks: float


@dataclass(frozen=True, slots=True)
class ScopeTime:
    """Of a scope in a kernel.

    Attributes:
        name: untrusted. spans: how often a warp was in it. clocks: in the mean. longest: of all.
        share: of the time that the warps of the kernel spent in any scope.
        warps: mean clocks by number of the warp.
    """

    name: str
    spans: int
    clocks: float
    longest: float
    share: float
    warps: dict[int, float]


@dataclass(frozen=True, slots=True)
class ScopedKernel:
    """Of a kernel: its scopes, the one with the largest share first, and the spans of the block to draw."""

    name: str
    blocks: int
    scopes: tuple[ScopeTime, ...]
    drawn: tuple[Span, ...]


def is_scopes(source: str) -> bool:
    """Whether a file is called as files of scopes are."""
    return source.endswith(_ENDING)


def read_scopes(path: Path) -> list[Span]:
    """The spans of a file. InputError if it cannot be read, or holds something else."""
    try:
        events = msgspec.json.decode(path.read_bytes(), type=_File).events
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"{path}: no file of scopes: {error}") from error
    spans: list[Span] = []
    for event in events:
        block, warp = _BLOCK.search(str(event.pid)), _WARP.match(str(event.tid))
        if event.ph == "X" and block and warp and event.dur >= 0:
            at = event.ts * _CLOCKS, event.dur * _CLOCKS
            spans.append(Span(event.cat, int(block[2]), int(warp[1]), event.name, *at))
    if not spans:
        raise InputError(f"{path}: it has no scopes of a kernel: put `with pl.scope(...)` around parts of one")
    return spans


def scoped_kernels(spans: Iterable[Span]) -> list[ScopedKernel]:
    """By kernel, the one with most spans first."""
    of: dict[str, list[Span]] = {}
    for span in spans:
        of.setdefault(span.kernel, []).append(span)
    return [_kernel(name, found) for name, found in sorted(of.items(), key=lambda item: -len(item[1]))]


def _kernel(name: str, spans: list[Span]) -> ScopedKernel:
    every = sum(map(_covered, _by_warp(spans).values())) or 1.0
    scopes: dict[str, list[Span]] = {}
    for span in spans:
        scopes.setdefault(span.scope, []).append(span)
    block = min(span.block for span in spans)
    return ScopedKernel(
        name,
        len({span.block for span in spans}),
        tuple(sorted((_scope(scope, found, every) for scope, found in scopes.items()), key=lambda one: -one.share)),
        tuple(_first_launch([span for span in spans if span.block == block])),
    )


def _by_warp(spans: Iterable[Span]) -> dict[tuple[int, int], list[Span]]:
    """In order of their begins."""
    found: dict[tuple[int, int], list[Span]] = {}
    for span in sorted(spans, key=lambda one: one.begin):
        found.setdefault((span.block, span.warp), []).append(span)
    return found


def _covered(spans: list[Span]) -> float:
    """Clocks in which a warp is in any of them."""
    total, end = 0.0, spans[0].begin
    for span in spans:
        total += max(0.0, span.begin + span.clocks - max(end, span.begin))
        end = max(end, span.begin + span.clocks)
    return total


def _first_launch(spans: list[Span]) -> list[Span]:
    """Of a block, up to a pause longer than all before it: then the next launch begins."""
    spans = sorted(spans, key=lambda one: one.begin)
    end = spans[0].begin + spans[0].clocks
    kept: list[Span] = []
    for span in spans:
        if kept and span.begin - end > end - spans[0].begin:
            break
        kept.append(span)
        end = max(end, span.begin + span.clocks)
    return sorted(kept, key=lambda one: (one.warp, one.begin))


def _scope(name: str, spans: list[Span], every: float) -> ScopeTime:
    clocks = np.array([span.clocks for span in spans])
    warp = np.array([span.warp for span in spans])
    means = {int(one): float(clocks[warp == one].mean()) for one in np.unique(warp)}
    share = min(1.0, float(clocks.sum()) / every)
    return ScopeTime(name, len(spans), float(clocks.mean()), float(clocks.max()), share, means)
