"""Matches gathered into changes: equal matches are one change, with its time on both sides and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from lanewise.compare.align import Match, align
from lanewise.compare.arm import Arm
from lanewise.compare.model import Change, Coverage, How, OpSide, Ratio
from lanewise.compare.statistics import Estimate, estimate, holm, judge, rounds_needed
from lanewise.compare.work import Op, Work

__all__ = ["KERNEL_WITHIN", "DeviceChanges", "device_changes", "to_ratio"]

KERNEL_WITHIN = 0.02
"""A kernel's time differs by less than this: no difference."""

# With this many kernels that are the same on both sides, their spread shows what a run cannot show about itself.
_EMPIRICAL_FROM = 6
_RESAMPLES = 2_000
_MAX_TESTS = 200
# Below this share of the work a difference is not worth a test: each test makes the others weaker.
_WORTH_A_TEST = {True: 0.002, False: 0.01}
_SAME_KERNEL: frozenset[How] = frozenset({"same", "moved"})


@dataclass(frozen=True)
class DeviceChanges:
    """Changes of device work.

    Attributes:
        changes: the largest difference first.
        split: per change the difference per kind of op, ns.
        coverage: of the device time.
        common: time of A over B that all kernels share, None where there are too few to tell.
        noise: standard deviation of the log ratio assumed for kernels.
    """

    changes: list[Change]
    split: dict[int, dict[str, float]]
    coverage: Coverage
    common: float | None
    noise: float


@dataclass(frozen=True)
class _Group:
    how: How
    sure: bool
    a_ops: tuple[int, ...]
    b_ops: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    times: int


def device_changes(a: Arm, b: Arm, *, pair: bool) -> DeviceChanges:
    """Compare the work of two arms. `pair`: whether their runs were taken together."""
    left, right = a.typical.work, b.typical.work
    if a.typical.partial or b.typical.partial:
        return DeviceChanges([], {}, Coverage(0.0, 0.0, 0.0, 0.0), None, 0.0)
    matches = align(left, right)
    groups = _gather(left, right, [*matches, *_unmatched(matches, len(left.at), len(right.at))])
    rounds = [(a.work_rounds(group.a), b.work_rounds(group.b)) for group in groups]
    middles = [(_middle(x), _middle(y)) for x, y in rounds]
    common, spread = _common(groups, middles)
    noise = math.hypot(a.device_between, b.device_between)
    if spread is not None and left.device and right.device:
        # Kernels of one card vary less between processes than the host does: their own spread is the better guide.
        noise = min(noise, spread)
    else:
        common = None
    ratios = _ratios(groups, rounds, middles, noise, common, pair, device=left.device)
    changes: list[Change] = []
    split: dict[int, dict[str, float]] = {}
    order = sorted(range(len(groups)), key=lambda i: (-abs(middles[i][1] - middles[i][0]), groups[i].b, groups[i].a))
    for index, i in enumerate(order):
        group, (before, after) = groups[i], middles[i]
        changes.append(
            Change(
                how=group.how,
                a=[_side(left.ops[op]) for op in group.a_ops],
                b=[_side(right.ops[op]) for op in group.b_ops],
                times=group.times,
                a_ns=before,
                b_ns=after,
                ratio=ratios[i],
                sure=group.sure,
                positions=list(group.b or group.a)[:64],
            )
        )
        split[index] = _by_kind(left, right, group)
    return DeviceChanges(changes, split, _coverage(changes), common, noise)


def _unmatched(matches: list[Match], n: int, m: int) -> list[Match]:
    seen_a = {i for match in matches for i in match.a}
    seen_b = {j for match in matches for j in match.b}
    gone = [Match((i,), (), "gone") for i in range(n) if i not in seen_a]
    return gone + [Match((), (j,), "new") for j in range(m) if j not in seen_b]


def _gather(left: Work, right: Work, matches: list[Match]) -> list[_Group]:
    """Equal matches as one group; ops are compared by what they are and not by which of the steps' rows they have."""
    names_a, names_b = _lines_of(left.ops), _lines_of(right.ops)
    found: dict[tuple[object, ...], _Group] = {}
    for match in matches:
        a_ops = tuple(int(left.at[i]) for i in match.a)
        b_ops = tuple(int(right.at[j]) for j in match.b)
        alone = not (a_ops and b_ops)
        key = (match.how, match.sure, *(line[:-1] if alone else line for line in (names_a[i] for i in a_ops)), "→")
        key += tuple(line[:-1] if alone else line for line in (names_b[j] for j in b_ops))
        known = found.get(key)
        if known is None:
            found[key] = _Group(match.how, match.sure, a_ops, b_ops, match.a, match.b, 1)
        else:
            found[key] = replace(known, a=known.a + match.a, b=known.b + match.b, times=known.times + 1)
    return list(found.values())


def _lines_of(ops: Sequence[Op]) -> list[tuple[object, ...]]:
    """What makes two ops the same line of the output: name, launch, size and operator, not the path to it."""
    return [
        (op.name, op.kind, op.launch, op.bytes, op.operators[:1], op.graph, op.shapes if op.kind == "operator" else "")
        for op in ops
    ]


def _side(op: Op) -> OpSide:
    return OpSide(op.name, op.kind, op.launch, op.operators[0] if op.operators else "", op.graph)


def _middle(rounds: Sequence[np.ndarray]) -> float:
    return float(np.median(np.concatenate(list(rounds)))) if rounds and sum(map(len, rounds)) else 0.0


def _common(groups: list[_Group], middles: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Ratio that kernels that are the same on both sides share, and their spread around it (standard deviation of the
    log); None with too few of them. Each counts once: what they share is the card's doing, not the program's."""
    logs = np.array(
        [
            math.log(x / y)
            for group, (x, y) in zip(groups, middles, strict=True)
            if group.how in _SAME_KERNEL and x > 0 and y > 0
        ]
    )
    if len(logs) < _EMPIRICAL_FROM:
        return None, None
    middle = float(np.median(logs))
    return math.exp(middle), 1.4826 * float(np.median(np.abs(logs - middle)))


def _ratios(
    groups: list[_Group],
    rounds: list[tuple[list[np.ndarray], list[np.ndarray]]],
    middles: list[tuple[float, float]],
    noise: float,
    common: float | None,
    pair: bool,
    *,
    device: bool,
) -> list[Ratio | None]:
    """Ratio and verdict per group; p values are adjusted for all groups that were tested."""
    sized = [i for i, (before, after) in enumerate(middles) if before > 0 and after > 0]
    sized.sort(key=lambda i: -max(middles[i]))
    worth = _WORTH_A_TEST[device] * max(sum(x for x, _ in middles), sum(y for _, y in middles))
    most = min(_MAX_TESTS, sum(max(middles[i]) >= worth for i in sized))
    found = {i: estimate(*rounds[i], paired=pair, between=noise, resamples=_RESAMPLES) for i in sized[:most]}
    tested = [i for i, e in found.items() if e.p < 1]
    adjusted = dict(zip(tested, holm([found[i].p for i in tested]), strict=True))
    ratios: list[Ratio | None] = [None] * len(groups)
    for i, value in found.items():
        value = value._replace(p=adjusted.get(i, 1.0))
        ratio = to_ratio(value, *rounds[i], within=KERNEL_WITHIN, tests=len(tested))
        # What all kernels share is a matter of clocks: a kernel differs only if it also differs from the others.
        if common is not None and ratio.verdict in {"faster", "slower"}:
            apart = value._replace(ratio=value.ratio / common, low=value.low / common, high=value.high / common)
            if judge(apart, within=KERNEL_WITHIN) != ratio.verdict:
                ratio = msgspec.structs.replace(ratio, verdict="not enough samples")
        ratios[i] = ratio
    for i in sized[most:]:
        ratios[i] = to_ratio(
            Estimate(middles[i][0] / middles[i][1], math.nan, math.nan, math.nan, 1.0),
            *rounds[i],
            within=KERNEL_WITHIN,
            tests=len(tested),
        )
    return ratios


def to_ratio(
    found: Estimate,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    *,
    within: float,
    tests: int = 1,
    several: int = 0,
) -> Ratio:
    """An estimate as data, with its verdict.

    Args:
        a, b: the rounds it is of.
        within: share up to which a difference is none.
        tests: number of tests that its p value is adjusted for.
        several: runs per side that a single run per side would have to become, 0 if that is not what is missing.
    """
    unit = "runs" if min(len(a), len(b)) > 1 else "steps"
    counts = (len(a), len(b)) if unit == "runs" else (len(a[0]) if a else 0, len(b[0]) if b else 0)
    verdict = judge(found, within=within)
    further = 0
    if verdict == "not enough samples":
        further = several or max(0, rounds_needed(found, max(1, min(counts)), within=within) - min(counts))
    return Ratio(
        verdict=verdict,
        ratio=_number(found.ratio),
        low=_number(found.low),
        high=_number(found.high),
        p=found.p if found.p < 1 else None,
        mde=_number(found.mde),
        unit=unit,
        a_count=counts[0],
        b_count=counts[1],
        further=further,
        further_unit="runs" if several else unit,
        tests=tests,
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _by_kind(left: Work, right: Work, group: _Group) -> dict[str, float]:
    split: dict[str, float] = {}
    for work, positions, sign in ((left, group.a, -1.0), (right, group.b, 1.0)):
        kinds = np.array([work.ops[work.at[p]].kind for p in positions])
        for kind in np.unique(kinds).tolist() if len(kinds) else []:
            rows = np.array(positions)[kinds == kind]
            split[kind] = split.get(kind, 0.0) + sign * float(np.median(work.duration[:, rows].sum(axis=1)))
    return split


def _coverage(changes: list[Change]) -> Coverage:
    total = sum(change.a_ns + change.b_ns for change in changes)
    new = sum(change.b_ns for change in changes if change.how == "new")
    gone = sum(change.a_ns for change in changes if change.how == "gone")
    alone = sum(change.a_ns + change.b_ns for change in changes if change.how == "graph input")
    if total <= 0:
        return Coverage(1.0, 0.0, 0.0, 0.0)
    return Coverage((total - new - gone - alone) / total, alone / total, new, gone)
