"""Structs of a comparison. The JSON form of `Comparison` is the public schema `lanewise.diff/1`.

Names in here that come from a trace are untrusted text: every output escapes them. Times are ns per step.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lanewise.report.model import Finding
from lanewise.shown import Shown

__all__ = [
    "SCHEMA",
    "Change",
    "Comparison",
    "ContextChange",
    "ContextStatus",
    "CountChange",
    "Coverage",
    "Difference",
    "EnvironmentDifference",
    "FindingChange",
    "HostChange",
    "How",
    "OpSide",
    "Ratio",
    "SideSummary",
    "Waterfall",
    "WaterfallItem",
    "Weight",
]

SCHEMA = "lanewise.diff/1"

Weight = Literal["refuse", "warn", "info"]
Unit = Literal["runs", "steps", "none"]

How = Literal[
    "same",
    "launch",
    "name",
    "epilogue",
    "kernel",
    "size",
    "moved",
    "fused",
    "split",
    "absorbed",
    "graph input",
    "new",
    "gone",
]
"""How the two sides of a change relate.

same: the same kernel with the same launch configuration. launch: the same kernel, launched differently. name: the same
kernel up to noise in its name. epilogue: the same matrix product with another epilogue. kernel: another kernel for the
same operator. size: the same copy or set of another size or kind of memory; the same operator on other shapes.
moved: the same in another order. fused: one kernel of B covers several (or one) of A. split: the reverse. absorbed: a
matrix product took over pointwise work, with the copy that this may need. graph input: copies into the fixed addresses
of a replayed graph. new, gone: in no relation to anything on the other side.
"""


class EnvironmentDifference(msgspec.Struct, frozen=True):
    """One fact that differs. `refuse` makes times incomparable, `warn` may explain a difference in time."""

    key: str
    a: str
    b: str
    weight: Weight


class Ratio(msgspec.Struct, frozen=True):
    """Time of A over time of B, and how sure that is; see `lanewise.compare.statistics`.

    Attributes:
        verdict: faster, slower, no difference, not enough samples, or invalid: of B against A.
        ratio: above 1 where B is faster; None where a side is missing or 0.
        low, high: 95 % interval; None where there are too few samples for one.
        p: adjusted for the number of tests made; None where none was.
        mde: smallest ratio, as a share, that these samples would find; None without an interval.
        unit: what was resampled. a_count, b_count: how many of these.
        further: how many more per side would settle it, 0 if it is settled or cannot be told; of `further_unit`.
        tests: number of tests that p is adjusted for.
    """

    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    mde: float | None
    unit: Unit
    a_count: int
    b_count: int
    further: int = 0
    further_unit: Unit = "runs"
    tests: int = 1


class OpSide(msgspec.Struct, frozen=True):
    """One op of one side of a change."""

    name: str
    kind: str
    launch: str
    operator: str
    graph: bool = False


class Change(msgspec.Struct, frozen=True):
    """Work that relates in one way, everywhere in the step where it does.

    Attributes:
        how: see `How`.
        a, b: the ops of each side in order, once; empty on one side for `new`, `gone` and `graph input`.
        times: how often it happens per step.
        a_ns, b_ns: time of all of it per step (median of steps).
        ratio: of the times; None where a side is missing.
        sure: whether names (and recorded sizes) say so; False where only the order does.
        positions: places in the step, of B where it has any, else of A.
    """

    how: How
    a: list[OpSide]
    b: list[OpSide]
    times: int
    a_ns: float
    b_ns: float
    ratio: Ratio | None
    sure: bool
    positions: list[int]

    @property
    def delta_ns(self) -> float:
        """Time that B takes more."""
        return self.b_ns - self.a_ns


class HostChange(msgspec.Struct, frozen=True):
    """Host time of one name per step, nothing below it included; scaled to the step without the profiler if known."""

    group: str
    name: str
    a_count: float
    b_count: float
    a_ns: float
    b_ns: float


ContextStatus = Literal["same", "renamed", "wrapped", "unwrapped", "new", "gone"]
"""A place of the program on both sides: the same, under another name, with something put around it or taken away from
around it, or on one side only."""


class ContextChange(msgspec.Struct, frozen=True):
    """A place of the program whose cost differs: a thread, frame, module, annotation or operator with all inside of it.

    Attributes:
        status: see `ContextStatus`.
        kind: one of `lanewise.tree.model.KIND_NAMES`.
        name: in B (in A if it is gone). was: in A, where it is renamed.
        path: the places around it, outermost first, the last six. depth: how many there are.
    """

    status: ContextStatus
    kind: str
    name: str
    was: str
    path: list[str]
    depth: int
    a_device_ns: float
    b_device_ns: float
    a_host_ns: float
    b_host_ns: float
    a_launches: float
    b_launches: float


class WaterfallItem(msgspec.Struct, frozen=True):
    """A part of the way from A's step time to B's, ns; its `parts` sum to it exactly."""

    key: str
    label: str
    ns: int
    parts: list[WaterfallItem] = msgspec.field(default_factory=list)


class Waterfall(msgspec.Struct, frozen=True):
    """a_ns + the sum of the items' ns == b_ns, exactly."""

    a_ns: int
    b_ns: int
    items: list[WaterfallItem]


class CountChange(msgspec.Struct, frozen=True):
    """A quantity per step on both sides; `type` as in `lanewise.report.quantity`."""

    key: str
    label: str
    type: Literal["count", "time", "share", "bytes"]
    a: float
    b: float


class Coverage(msgspec.Struct, frozen=True):
    """How much of the device time of both sides together is matched, and how much is explained without a partner."""

    matched_share: float
    explained_share: float
    new_ns: float
    gone_ns: float


class FindingChange(msgspec.Struct, frozen=True):
    """A finding of either side: `fixed` (only in A), `new` (only in B) or `remaining`."""

    status: Literal["fixed", "new", "remaining"]
    code: str
    name: str
    kind: str
    a_title: str
    b_title: str
    a_us: float
    b_us: float


class SideSummary(msgspec.Struct, frozen=True):
    """One side of a comparison."""

    label: str
    sources: list[str]
    runs: int
    steps: int
    steady: int
    step_source: str
    step_ns: float
    recorded_step_ns: float
    unprofiled: bool
    device_ns: float
    on_device: bool
    busy_share: float
    regime: str
    classes: dict[str, float]
    compiled: bool
    graphs: bool
    environment: dict[str, str]


class Difference(msgspec.Struct, frozen=True):
    """Everything that differs from the base on one other side.

    Attributes:
        a, b: labels of the sides.
        verdict: what changed and what did not, in sentences.
        changed: whether anything that runs differs, or a time does by its verdict word.
        step: of the step times.
        warnings: what makes the comparison weaker, in sentences.
        common: time of A over B that all kernels share (a difference of clocks, not of the program), None if unknown.
        device: changes of device work (of operators without a device), the largest difference first.
        coverage: how much of the device time they account for.
        statements: what a pair of runs proves beyond each run's own findings (CMP103, CMP105).
        contexts: places of the program whose cost differs, outer ones first; empty unless asked for.
    """

    a: str
    b: str
    verdict: str
    changed: bool
    step: Ratio
    warnings: list[str]
    environment: list[EnvironmentDifference]
    waterfall: Waterfall
    counts: list[CountChange]
    device: list[Change]
    coverage: Coverage
    common: float | None
    host: list[HostChange]
    findings: list[FindingChange]
    statements: list[Finding] = msgspec.field(default_factory=list)
    contexts: list[ContextChange] = msgspec.field(default_factory=list)


class Comparison(Shown, msgspec.Struct, frozen=True):
    """Two or more sides; the first is the base of every difference."""

    schema: str
    version: str
    base: SideSummary
    others: list[SideSummary]
    differences: list[Difference]

    def __repr__(self) -> str:
        return f"<Comparison with {self.base.label[:100]!r}: {[one.verdict[:300] for one in self.differences[:3]]}>"
