"""`predict`: what a step would be with some changes made, each alone and all together."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lanewise._version import __version__
from lanewise.diagnose.engine import effects_of, evaluate, host_factor, matters, wish_of
from lanewise.diagnose.explain import facts_of
from lanewise.diagnose.settings import Settings
from lanewise.diagnose.what_if.named import WAYS, Named, named_change, of_finding
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.measure.regime.regime import REGIMES, regime_of
from lanewise.measure.unprofiled import DEVICE_SPREAD, classes_of_replay
from lanewise.replay.apply import apply
from lanewise.replay.best_first import RESIDUAL
from lanewise.replay.binding import binding
from lanewise.replay.change import Change
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import Replayed, simulate
from lanewise.replay.undistort import slower
from lanewise.report.prediction import PREDICTION_SCHEMA, Applied, Limit, Prediction, StepState
from lanewise.report.priced import priced_prediction
from lanewise.trace.model import Trace
from lanewise.trace.reader import opened
from lanewise.trace.schema import ENGINE_PREFIX

__all__ = ["predict", "predict_answers", "predict_named", "predict_of"]

_LIMITS = 3


def predict(
    trace: Trace | str | os.PathLike[str],
    changes: str | Sequence[str] | None = None,
    *,
    unprofiled_us: float | None = None,
    settings: Settings | None = None,
) -> Prediction:
    """What a step of a trace would be with some changes made: each by itself, and all together in the order given.

    Args:
        trace: what `lanewise.read` returned, or what it would read.
        changes: what to change, in words: a finding's code (`"MEM106"`), `"kernel:gemm=2x"`, `"copies=overlap"`,
            `"dtype=bf16"` ... (docs/predict.md); by default every finding of the report, the best first.
        unprofiled_us: step time measured without a profiler, us; overrides what the recorder wrote into the trace.
        settings: thresholds of the rules; `load_settings()` reads those of the project.

    Raises:
        UsageError: a change that does not exist, or that the trace gives nothing to apply to.
        InputError: a file that cannot be read.
    """
    return predict_of(facts_of(opened(trace), unprofiled_us=unprofiled_us), changes, settings or Settings())


def predict_of(facts: Facts, changes: str | Sequence[str] | None, settings: Settings) -> Prediction:
    """`predict`, for whoever has the measures."""
    if changes is None:
        wanted = _all_findings(facts, settings)
    else:
        words = [changes] if isinstance(changes, str) else list(changes)
        if not words:
            raise UsageError(f"nothing to apply; say {WAYS}")
        wanted = [named_change(facts, one, settings) for one in dict.fromkeys(words)]
    return priced_prediction(predict_named(facts, wanted), settings.price)


def predict_answers(facts: Facts, codes: Collection[str], settings: Settings) -> Prediction | None:
    """What a step would be with those of some findings mended that are there and would help; None if there are none."""
    wanted = Settings(select=tuple(codes), thresholds=settings.thresholds)
    try:
        return predict_named(facts, _all_findings(facts, wanted))
    except UsageError:
        return None


def predict_named(facts: Facts, wanted: Sequence[Named]) -> Prediction:
    """`predict`, for changes that are known already. Raises UsageError for a trace in which nothing takes time."""
    replay = _Replay(facts)
    if replay.step_ns <= 0:
        raise UsageError("the trace holds no step to predict from: nothing in it takes time")
    applied: list[Applied] = []
    made, before, uncertain = Change(), replay.step_ns, 0.0
    for one in wanted:
        change = one.wish.change
        alone = replay.gain(change, one.wish.spread)
        made = made + change if applied else change
        after = replay.after(made)
        uncertain = float(np.hypot(uncertain, one.wish.spread * (before - after)))
        applied.append(
            Applied(
                change=one.asked,
                title=one.title,
                alone_us=_us(alone.ns),
                alone_low_us=_us(alone.low),
                alone_high_us=_us(alone.high),
                gain_us=_us(before - after),
                leaves_us=_us(after),
                bound=one.bound,
                note=one.note,
            )
        )
        before = after
    step = facts.unprofiled
    return Prediction(
        schema=PREDICTION_SCHEMA,
        version=__version__,
        source=facts.trace.reading.source,
        now=_state(facts, step.graph, step.replayed, _Interval(step.step_ns, step.low_ns, step.high_ns)),
        predicted=_state(facts, *replay.made(made), replay.step(made, uncertain)),
        recorded_us=_us(facts.steps.period_ns or step.recorded_ns),
        timed=step.timed,
        changes=applied,
    )


def _all_findings(facts: Facts, settings: Settings) -> list[Named]:
    """What the report would have mended, in the order in which the engine does it."""
    found, _ = evaluate(facts, settings)
    named = [of_finding(rule, outcome) for rule, outcome in found if wish_of(rule, outcome) is not None]
    effects = effects_of(facts, [one.wish for one in named])
    order = sorted(range(len(named)), key=lambda at: effects[at].place)
    matter = [named[at] for at in order if matters(facts, effects[at])]
    if not matter:
        raise UsageError(f"the report finds nothing that would shorten the step; say what to apply: {WAYS}")
    return matter


@dataclass(frozen=True)
class _Interval:
    """A time and its 80 % interval, ns."""

    ns: float
    low: float
    high: float


class _Replay:
    """The run without the profiler, replayed with changes; and the same with a quicker and a slower host."""

    def __init__(self, facts: Facts) -> None:
        step = facts.unprofiled
        factor = host_factor(facts)
        self.step_ns, self._timed, self._graph = step.step_ns, step.timed, step.graph
        now = step.replayed.step_ns
        self._scale = self.step_ns / now if now else 1.0
        self._bands = [slower(step.graph, 1 / factor), slower(step.graph, factor)]
        self._now = self._near(Change())
        # A long recording takes seconds to replay, and each change is asked about several times in a row.
        self.made, self._near = lru_cache(1)(self.made), lru_cache(1)(self._near)

    def made(self, change: Change) -> tuple[StepGraph, Replayed]:
        """The graph with a change, replayed."""
        graph = apply(self._graph, change)
        return graph, simulate(graph)

    def after(self, change: Change) -> float:
        """The step with a change, ns."""
        return self.made(change)[1].step_ns * self._scale

    def _near(self, change: Change) -> list[float]:
        """The same with a quicker and with a slower host."""
        return [simulate(apply(band, change)).step_ns * self._scale for band in self._bands]

    def gain(self, change: Change, spread: float) -> _Interval:
        """What a change takes off the step; `spread` is its own relative uncertainty."""
        gain = self.step_ns - self.after(change)
        near = [now - then for now, then in zip(self._now, self._near(change), strict=True)]
        own = float(np.hypot(spread * gain, RESIDUAL * self.step_ns if abs(gain) > 1 else 0.0))
        interval = _around(gain, near, own)
        return _Interval(gain, max(0.0, interval.low) if gain >= 0 else interval.low, interval.high)

    def step(self, change: Change, uncertain: float) -> _Interval:
        """The step with a change; `uncertain` is how well the change's own effect is known, ns."""
        after = self.after(change)
        near = self._near(change)
        if self._timed:
            # The step is known as it is: only how much of it goes depends on the host.
            near = [self.step_ns - (now - then) for now, then in zip(self._now, near, strict=True)]
        interval = _around(after, near, float(np.hypot(uncertain, DEVICE_SPREAD * after)))
        return _Interval(after, max(0.0, interval.low), interval.high)


def _around(value: float, near: Sequence[float], own: float) -> _Interval:
    """A value between what it is with a quicker and with a slower host, and uncertain by `own` besides."""
    low = value - float(np.hypot(own, max(0.0, value - min(near))))
    return _Interval(value, low, value + float(np.hypot(own, max(0.0, max(near) - value))))


def _state(facts: Facts, graph: StepGraph, replayed: Replayed, step: _Interval) -> StepState:
    trace, device = facts.trace, facts.classes.device
    classes: dict[str, float] = {}
    if device:
        communicating = facts.is_family("communication")
        # Where a change leaves nothing for the device to do, all that is left is the host's.
        classes = classes_of_replay(trace, graph, replayed, step.ns, device, communicating) or {"host": step.ns}
    shares = {name: value / step.ns for name, value in classes.items()} if step.ns else {}
    regime = REGIMES[regime_of(shares)][1] if device else "on the CPU" if facts.on_cpu else REGIMES["undetermined"][1]
    return StepState(
        step_us=_us(step.ns),
        low_us=_us(step.low),
        high_us=_us(step.high),
        regime=regime,
        shares={name: round(share, 4) for name, share in shares.items()},
        limits=_limits(facts, graph, replayed),
    )


def _limits(facts: Facts, graph: StepGraph, replayed: Replayed) -> list[Limit]:
    """What the critical path of a step consists of, added up by name, the most first."""
    chain = binding(graph, replayed)
    trace, event = facts.trace, graph.event[chain.node]
    on_host, known = graph.on_host[chain.node], event >= 0
    source = np.where(on_host & known, facts.host.outermost_operator[event], event)
    name = np.where(source >= 0, trace.name[source].astype(np.int64), -1)
    time = {
        "kernels starting": float(chain.wait[~on_host].sum()),
        "returning from waits": float(chain.wait[on_host].sum()),
    }
    for host in (False, True):
        mine = on_host == host
        used, place = np.unique(name[mine], return_inverse=True)
        for one, ns in zip(used.tolist(), np.bincount(place, chain.work[mine]).tolist(), strict=True):
            what = _on_host(trace, one) if host else short_name(trace.names[int(one)]) if one >= 0 else "other threads"
            time[what] = time.get(what, 0.0) + ns
    total = sum(time.values())
    most = sorted(time.items(), key=lambda item: -item[1])[:_LIMITS]
    return [Limit(what, round(ns / total, 4)) for what, ns in most if total and ns >= 0.01 * total]


def _on_host(trace: Trace, name: int) -> str:
    """What the host does in the operator of that name; -1 for none."""
    operator = trace.names[name].removeprefix(ENGINE_PREFIX) if name >= 0 else ""
    return f"host work in {short_name(operator, 40)}" if operator else "host work between operators"


def _us(ns: float) -> float:
    return round(ns / 1e3, 3)
