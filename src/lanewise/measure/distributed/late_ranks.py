"""Which rank of a job is late because of its own work, by how much, and what it does in that time.

Late is not who comes last in a recording: the profiler slows every host down by its own factor, and so do caches and other
programs. Per context (an operator, a stretch between two of them, a kernel) a rank is compared with the others after
that factor is taken out. What a rank does more than the others in a context, far beyond how much they differ among
themselves, is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.trace.groups import weighted_median

__all__ = ["OF_STEP", "Excess", "Job", "Late", "compare_ranks"]

OF_STEP = 0.06
"""What a rank does more counts from this share of the step on."""

_OF_STEP_UNLIKE = 0.10
"""The same where ranks do different things, as the stages of a pipeline do."""

_LEAST_NS = 200_000
"""And from this time on."""

_HOST_NOISE, _DEVICE_NOISE = 0.6, 0.1
"""The same work in one context differs by this at least between healthy ranks, on the host and on the device."""

_CALL_NS, _SHORT_NOISE = 30_000, 2.0
"""Many calls that each take less than so much longer are a disturbed host, unless all of them take so many times as long
in addition."""

_SUBMITTED_NS = 100_000
"""The same for operators where a device does their work: to submit it takes a host as long whatever the data is."""

_SPREADS = 4.5
"""And by so many times the spread that the contexts of this job show."""

_SLOWER = 0.04
"""Devices of one kind differ by less than this in all of their kernels."""

_CONTEXT_NS = 40_000
"""What a context may differ by in any case."""

_OTHERS = 3.0
"""A late rank does at least so many times more than the others do in their own exceptional contexts."""

_ONE_OF_STEP = 0.015
"""Where ranks do different things, only single stretches of the host count that are longer by this share of the step: in
everything else their hosts differ anyway."""

_OF_MOST = 0.05
"""What is less than this share of a rank's most exceptional context is noise beside it."""

_MORE_CALLS = 0.15
"""A rank that makes more calls than the others by this share does more, however noisy the time of one call is."""

_FEW = 10
"""Contexts from which a spread can be told."""

_ENOUGH = 64
"""Ranks that one is compared with: the median of more says no more, and thousands with thousands take minutes."""

_ONE_CAUSE = 0.3
"""A cause is one place or few: a disturbed host is a little slower in many."""

_IN_MOST = 0.5
"""In three quarters of its steps a rank does at least this share of what it does more in the median one."""

_AGAIN, _AS_OFTEN = 5.0, 0.1
"""What is called in a loop is called by so many times more than on the others, all of it as often to within this share."""

_COMMON = 0.5
"""A context that a smaller share of the ranks has is compared together with others of its kind."""


@dataclass(frozen=True, slots=True)
class Excess:
    """What a rank does more in one context than the others, ns per step without the profiler.

    `members` are the contexts that count together, of which `context` is the largest on this rank. `called_in` is the
    operator that it is mostly called in, "" if in none. `is_loop` says that it is a loop of short calls.
    """

    context: Context
    members: tuple[Context, ...]
    mine_ns: float
    others_ns: float
    more_ns: float
    mine_count: float
    others_count: float
    called_in: str = ""
    is_loop: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """A rank whose own work takes longer than the others'.

    Attributes:
        index: row of the rank in the job.
        more_ns: what it does more per step.
        excess: in which contexts, the most first.
    """

    index: int
    more_ns: float
    excess: list[Excess]


@dataclass(frozen=True, eq=False)
class Job:
    """Ranks of one job.

    Attributes:
        ranks: summaries in order of rank.
        step_ns: the step without the profiler: as timed, or what the ranks need by themselves.
        timed: whether it was timed.
        alike: whether all do the same, as the stages of a pipeline do not.
        host_ns, device_ns: own work per step of each rank, with all hosts as quick as the median one; as it is
            where ranks do different things.
        more_ns: what each rank does more than the others in exceptional contexts.
        host_factor: how much slower than the median each rank's host was while it was recorded, in all it did.
        threshold_ns: from which time on a rank is late.
        late: the latest first.
    """

    ranks: list[RankSummary]
    step_ns: float
    timed: bool
    alike: bool
    host_ns: np.ndarray
    device_ns: np.ndarray
    more_ns: np.ndarray
    host_factor: np.ndarray
    threshold_ns: float
    late: list[Late]


def compare_ranks(ranks: Sequence[RankSummary], *, of_step: float = OF_STEP) -> Job:
    """Compare the ranks of a job, two at least.

    Args:
        ranks: their summaries. of_step: from which share of the step on a rank is late.
    """
    ordered = sorted(ranks, key=lambda one: one.rank)
    table = _Table.of(ordered)
    timed = [one.timed_ns for one in ordered if one.timed_ns > 0]
    step_ns = float(np.median(timed)) if timed else float(np.median([one.alone_ns for one in ordered]))
    unlike = any(one.name in ("send", "recv") for rank in ordered for one in rank.communications)
    threshold = max((max(of_step, _OF_STEP_UNLIKE) if unlike else of_step) * step_ns, _LEAST_NS)
    found = table.excess(_ONE_OF_STEP * step_ns if unlike else 0.0)
    excess = [[one for one in mine if _in_most_steps(ordered[row], one)] for row, mine in enumerate(found)]
    if unlike:
        excess = [_without_its_part(mine, threshold) for mine in excess]
    more = np.array([sum(one.more_ns for one in mine) for mine in excess])
    late = [
        Late(row, float(more[row]), sorted(excess[row], key=lambda one: -one.more_ns))
        for row in np.argsort(-more, kind="stable").tolist()
        if more[row] >= threshold
        and more[row] >= _OTHERS * float(np.median(np.delete(more, row)))
        and max(one.more_ns for one in excess[row]) >= _ONE_CAUSE * more[row]
    ]
    on_device = np.array([context.on_device for context in table.contexts], dtype=bool)
    host_more = np.array([sum(one.more_ns for one in mine if not one.context.on_device) for mine in excess])
    return Job(
        ranks=ordered,
        step_ns=step_ns,
        timed=bool(timed),
        alike=not unlike,
        host_ns=(table.time[:, ~on_device].sum(axis=1) - host_more) / (1.0 if unlike else table.factor) + host_more,
        device_ns=table.time[:, on_device].sum(axis=1),
        more_ns=more,
        host_factor=table.factor,
        threshold_ns=threshold,
        late=late,
    )


def _without_its_part(excess: list[Excess], threshold: float) -> list[Excess]:
    """What a stage of a pipeline does more, but for device work that is its part of the model: less than makes a rank late
    of what other stages do, too, and the same of what they do not."""
    kept = [one for one in excess if not one.context.on_device]
    for alone in (False, True):
        part = [one for one in excess if one.context.on_device and (one.others_count < 0.5) == alone]
        kept += part if sum(one.more_ns for one in part) >= threshold else []
    return kept


def _in_most_steps(rank: RankSummary, one: Excess) -> bool:
    """Whether a rank does more in most of its steps: another program may disturb some of them, and so move the median."""
    steps = np.array([seen.time_ns for seen in rank.contexts if seen.context in one.members], dtype=np.float64)
    return float(np.quantile(steps.sum(axis=0), 0.25)) - one.others_ns >= _IN_MOST * one.more_ns


def _loops(excess: Sequence[Excess]) -> list[Excess]:
    """The same with what is called again and again as one: a call, those inside it, and the time between them.

    A loop of short calls is no Python, although half of its time may lie between them.
    """
    found: list[Excess] = []
    rest = sorted(excess, key=lambda one: -one.more_ns)
    while rest:
        first, *rest = rest
        together = [first, *(one for one in rest if _in_loop(one) and _as_often(one, first))] if _in_loop(first) else []
        calls = [one for one in together if not _is_between(one.context)]
        if len(together) < 2 or not calls:
            found.append(first)
            continue
        rest = [one for one in rest if one not in together]
        # What is inside another call may take longer by itself than that one.
        main = next((one for one in calls if not one.called_in), calls[0])
        found.append(
            replace(
                main,
                members=tuple(context for one in together for context in one.members),
                mine_ns=sum(one.mine_ns for one in together),
                others_ns=sum(one.others_ns for one in together),
                more_ns=sum(one.more_ns for one in together),
                is_loop=True,
            )
        )
    return found


def _is_between(context: Context) -> bool:
    return context.kind == "python" and bool(context.until)


def _in_loop(one: Excess) -> bool:
    if one.context.on_device or one.mine_count - one.others_count < _AGAIN:
        return False
    return not _is_between(one.context) or one.mine_ns < _CALL_NS * one.mine_count


def _as_often(one: Excess, other: Excess) -> bool:
    mine, its = one.mine_count - one.others_count, other.mine_count - other.others_count
    return abs(mine - its) <= _AS_OFTEN * max(mine, its)


@dataclass(frozen=True, eq=False)
class _Table:
    """Typical own time of each rank in each context, ns per step; shape (ranks, contexts)."""

    contexts: list[Context]
    time: np.ndarray
    count: np.ndarray
    common: np.ndarray
    factor: np.ndarray
    called_in: list[dict[Context, str]]

    @staticmethod
    def of(ranks: Sequence[RankSummary]) -> _Table:
        column: dict[Context, int] = {}
        for rank in ranks:
            for one in rank.contexts:
                column.setdefault(one.context, len(column))
        time = np.zeros((len(ranks), len(column)))
        count = np.zeros_like(time)
        shared = np.zeros(time.shape, dtype=bool)
        for row, rank in enumerate(ranks):
            for one in rank.contexts:
                at = row, column[one.context]
                time[at], count[at], shared[at] = one.typical_ns, one.count, one.shared
        # A kernel that always ran beside a collective takes what it takes where it ran alone.
        each = np.where(count > 0, time / np.maximum(count, 1e-9), np.inf).min(axis=0)
        time = np.where(shared, np.minimum(time, np.where(np.isfinite(each), each, 0.0) * count), time)
        common = (time > 0).mean(axis=0) > _COMMON
        contexts = list(column)
        called_in = [{one.context: one.called_in for one in rank.contexts if one.called_in} for rank in ranks]
        return _Table(contexts, time, count, common, _factors(contexts, time, common), called_in)

    def excess(self, one_ns: float) -> list[list[Excess]]:
        """By rank, the contexts in which it does exceptionally more than the others.

        Args:
            one_ns: of the host, how much longer a single stretch must be.
        """
        found: list[list[Excess]] = []
        kinds = sorted({(one.kind, one.on_device) for one in self.contexts})
        of_kind = np.array([kinds.index((one.kind, one.on_device)) for one in self.contexts])
        on_device = np.array([one.on_device for one in self.contexts], dtype=bool)
        between = np.array([_is_between(one) for one in self.contexts], dtype=bool)
        noise = np.where(on_device, _DEVICE_NOISE, self._host_noise(on_device))
        operator = np.array([one.kind == "operator" for one in self.contexts], dtype=bool)
        call_ns = np.where(operator & on_device.any(), _SUBMITTED_NS, _CALL_NS)
        for row in range(len(self.time)):
            others = np.delete(np.arange(len(self.time)), row)
            if len(others) > _ENOUGH:
                others = others[np.linspace(0, len(others) - 1, _ENOUGH).astype(np.int64)]
            scale = np.where(on_device, 1.0, self.factor[row])
            even = self.time[others] / np.where(on_device[None, :], 1.0, self.factor[others, None])
            usual = np.median(even, axis=0) * scale
            more = self.time[row] - usual
            slower = self._slower_device(row, others, usual)
            # More calls are more work, however noisy each is.
            calls = np.median(self.count[others], axis=0)
            by_calls = np.where(self.count[row] > calls, (1.0 - calls / np.maximum(self.count[row], 1e-9)), 0.0)
            often = (by_calls * self.time[row] > _CONTEXT_NS) & (by_calls > _MORE_CALLS) & ~between
            apart = 1.48 * np.median(np.abs(even - np.median(even, axis=0)), axis=0) * scale
            short = ~on_device & (more < call_ns * np.maximum(self.count[row], 1.0))
            differs = np.maximum(np.where(short, np.maximum(noise, _SHORT_NOISE), noise) * usual, _SPREADS * apart)
            differs = np.where(often, 0.0, differs)
            stands_out = self.common & (more > np.maximum(differs, _CONTEXT_NS)) & ~slower
            mine = [self._one(at, (at,), row, others, usual, more) for at in np.flatnonzero(stands_out).tolist()]
            if slower.any():
                members = np.flatnonzero(slower)
                mine.append(
                    self._one(int(members[np.argmax(more[members])]), tuple(members.tolist()), row, others, usual, more)
                )
            mine += self._rare(row, others, even, of_kind, noise, scale)
            mine = [one for one in mine if one.context.on_device or one.more_ns >= one_ns * max(1.0, one.mine_count)]
            mine = _loops(mine)
            most = max((one.more_ns for one in mine), default=0.0)
            found.append([one for one in mine if one.more_ns >= _OF_MOST * most])
        return found

    def _one(
        self, at: int, members: tuple[int, ...], row: int, others: np.ndarray, usual: np.ndarray, more: np.ndarray
    ) -> Excess:
        chosen = list(members)
        return Excess(
            self.contexts[at],
            tuple(self.contexts[one] for one in members),
            float(self.time[row, chosen].sum()),
            float(usual[chosen].sum()),
            float(more[chosen].sum()),
            float(self.count[row, chosen].sum()),
            float(np.median(self.count[others][:, chosen].sum(axis=1))),
            self.called_in[row].get(self.contexts[at], ""),
        )

    def _host_noise(self, on_device: np.ndarray) -> float:
        """By what share the same host work differs between ranks, after the speed of their hosts is taken out."""
        chosen = self.common & ~on_device & (self.time > 0).all(axis=0)
        chosen &= np.median(self.time, axis=0) >= _CONTEXT_NS
        if np.count_nonzero(chosen) < _FEW:
            return _HOST_NOISE
        even = np.log(self.time[:, chosen] / self.factor[:, None])
        apart = np.abs(even - np.median(even, axis=0))
        spread = 1.48 * float(np.median(apart[apart > 0])) if (apart > 0).any() else 0.0
        return max(_HOST_NOISE, float(np.expm1(_SPREADS * spread)))

    def _slower_device(self, row: int, others: np.ndarray, usual: np.ndarray) -> np.ndarray:
        """Kernels that a rank runs as often as the others, if they take it longer throughout; bool, shape (contexts,)."""
        kernels = np.array([one.kind == "kernel" for one in self.contexts], dtype=bool) & self.common & (usual > 0)
        kernels &= np.abs(self.count[row] - np.median(self.count[others], axis=0)) < 0.5
        if not kernels.any():
            return kernels
        ratio = self.time[row, kernels] / usual[kernels]
        return kernels if weighted_median(ratio, usual[kernels]) > 1.0 + _SLOWER else np.zeros_like(kernels)

    def _rare(
        self, row: int, others: np.ndarray, even: np.ndarray, of_kind: np.ndarray, noise: np.ndarray, scale: np.ndarray
    ) -> list[Excess]:
        """What only few ranks have, added up by kind; the largest of this rank's contexts stands for them."""
        found: list[Excess] = []
        for kind in np.unique(of_kind[~self.common]).tolist():
            rare = np.flatnonzero(~self.common & (of_kind == kind))
            usual = float(np.median(even[:, rare].sum(axis=1)) * scale[rare[0]])
            mine = float(self.time[row, rare].sum())
            if mine - usual <= max(noise[rare[0]] * usual, _CONTEXT_NS):
                continue
            at = int(rare[np.argmax(self.time[row, rare])])
            counts = self.count[others][:, rare].sum(axis=1)
            found.append(
                Excess(
                    self.contexts[at],
                    tuple(self.contexts[one] for one in rare.tolist()),
                    mine,
                    usual,
                    mine - usual,
                    float(self.count[row, rare].sum()),
                    float(np.median(counts)),
                    self.called_in[row].get(self.contexts[at], ""),
                )
            )
        return found


def _factors(contexts: Sequence[Context], time: np.ndarray, common: np.ndarray) -> np.ndarray:
    """How much slower each rank's host is than the median in what all do: the median of the ratios, weighted by time."""
    on_host = np.array([not one.on_device for one in contexts], dtype=bool)
    chosen = common & on_host & (time > 0).all(axis=0)
    if not chosen.any():
        return np.ones(len(time))
    usual = np.median(time[:, chosen], axis=0)
    # Weighted by what the quickest takes: a rank that sleeps for most of its step has no slow host.
    least = time[:, chosen].min(axis=0)
    found = np.ones(len(time))
    for row in range(len(time)):
        found[row] = weighted_median(time[row, chosen] / usual, least)
    return found / np.median(found)
