"""Matches gathered into changes: equal matches are one change, with its time on both sides and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lanewise.compare.matching.align import Match, align
from lanewise.compare.model import Change, Coverage, How, OpSide
from lanewise.compare.outcome.time_ratios import Timed, middle, time_ratios
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.step_work import Op, Work

__all__ = ["DeviceChanges", "device_changes"]

_SAME_KERNEL: frozenset[How] = frozenset({"same", "moved"})


@dataclass(frozen=True)
class DeviceChanges:
    """Changes of device work.

    Attributes:
        changes: the largest difference first.
        split: per change the difference per kind of op, ns.
        coverage: of the device time.
        common: time of A over B that all kernels share, None where there are too few to tell.
    """

    changes: list[Change]
    split: dict[int, dict[str, float]]
    coverage: Coverage
    common: float | None


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
        return DeviceChanges([], {}, Coverage(0.0, 0.0, 0.0, 0.0), None)
    matches = align(left, right)
    groups = _gather(left, right, [*matches, *_unmatched(matches, len(left.at), len(right.at))])
    rounds = [(a.work_rounds(group.a), b.work_rounds(group.b)) for group in groups]
    middles = [(middle(x), middle(y)) for x, y in rounds]
    timed = [Timed(x, y, same=group.how in _SAME_KERNEL) for group, (x, y) in zip(groups, rounds, strict=True)]
    ratios, common = time_ratios(a, b, timed, pair=pair)
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
    return DeviceChanges(changes, split, _coverage(changes), common)


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
