"""A trace -> its `StepGraph`: the steady steps, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.lines import line_of_lanes
from lanewise.trace.intervals import covered, merge, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.intervals import Union
    from lanewise.trace.model import Trace

__all__ = ["build_graph"]

# Host and device clocks agree to about this much, ns.
_CLOCK = 5_000
# An operation that starts this long after the one before it, though launched long ago, was held back by another stream.
_HELD = 20_000
# Another stream's operation that held it back ended at most this long before.
_NEAR = 30_000
# A wait returns this soon after what it waited for; usually much sooner.
_RETURN, _USUAL_RETURN = 60_000, 12_000.0
# A wait or a delay of this length has a reason, even if none is recorded.
_LONG = 200_000
# A call that launches takes 5 to 10 us; far above its own median, with this many operations queued, the queue was full.
_SLOW, _SLOW_RATIO, _DEEP = 30_000, 8.0, 64
# A launch onto an idle device takes at most this long.
_DRAINED = 50_000
# Used where a recording holds no drained or no queued launch to measure them by.
_LATENCY, _PAUSE = 6_000.0, 1_000.0

_NEVER = np.iinfo(np.int64).min // 4

_ROW_KINDS = ((Kind.OPERATOR,), (Kind.RUNTIME, Kind.DRIVER), (Kind.PYTHON,), (Kind.ANNOTATION,))


def build_graph(trace: Trace, *, waiting: np.ndarray, steady: np.ndarray, stalls: Union) -> StepGraph:
    """The graph of the longest run of steady steps; of all steps, or of the whole window, where none is steady.

    Args:
        trace: the trace.
        waiting: which events are calls that block until the device has finished something, bool, shape (events,).
        steady: which steps may be replayed, bool, shape (steps,).
        stalls: time in which the profiler itself held up the host.
    """
    run = _Run.of(trace, steady)
    line_of_lane = line_of_lanes(trace, run.main_lane)
    device = _device_rows(trace, run)
    points = _points(trace, waiting, run, line_of_lane, device)
    return _Nodes(trace, run, points, device, line_of_lane).graph(stalls)


@dataclass(frozen=True, eq=False)
class _Run:
    """The longest run of consecutive steady steps: rows `first` to `last` of the step table; `begins` is when each begins
    on the host, `until` when the last one ends, ns."""

    first: int
    last: int
    begins: np.ndarray
    until: int
    main_lane: int

    @staticmethod
    def of(trace: Trace, steady: np.ndarray) -> _Run:
        steps = trace.steps
        chosen = steady if steady.any() else np.ones(len(steps), dtype=bool)
        follows = np.concatenate(([False], (np.diff(steps.number) == 1) & chosen[1:] & chosen[:-1]))
        number = np.where(chosen, np.cumsum(chosen & ~follows), 0)
        longest = int(np.argmax(np.bincount(number[chosen]))) if chosen.any() else 0
        rows = np.flatnonzero(number == longest)
        first, last = int(rows[0]), int(rows[-1])
        event = int(steps.event[first])
        lane = int(trace.lane[event]) if event >= 0 else -1
        return _Run(first, last, steps.start[first : last + 1], int(steps.end[last]), lane)

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def holds(self, trace: Trace, events: np.ndarray) -> np.ndarray:
        """Whether each event belongs to the run."""
        step = trace.steps.of_event[events]
        return (step >= self.first) & (step <= self.last)


@dataclass(frozen=True, eq=False)
class _Points:
    """Where host lines are cut, in order of line and time: `start` is where the host's work ends, `time` where it may go
    on (the end of a wait); `own` is the wait call's own time, `waits` whether it is one, `launches` whether it launches."""

    line: np.ndarray
    start: np.ndarray
    time: np.ndarray
    event: np.ndarray
    own: np.ndarray
    waits_for: np.ndarray
    lag: np.ndarray


def _device_rows(trace: Trace, run: _Run) -> np.ndarray:
    """Rows of `device_work` in the run, by stream and start."""
    work = trace.device_work
    rows = np.flatnonzero(run.holds(trace, work))
    event = work[rows]
    return rows[np.lexsort((trace.end[event], trace.start[event], trace.lane[event]))]


def _points(trace: Trace, waiting: np.ndarray, run: _Run, line_of_lane: np.ndarray, device: np.ndarray) -> _Points:
    launch = trace.links.launch
    calls = np.unique(launch[device][launch[device] >= 0])
    waits, own, target, lag = _waits(trace, waiting, run, calls)
    main = 0 if run.main_lane < 0 else int(line_of_lane[run.main_lane])
    mark_time = np.concatenate((run.begins, [run.until]))
    none = np.full(len(mark_time), -1, dtype=np.int64)
    events = np.concatenate((calls, waits))
    line = np.concatenate((line_of_lane[trace.lane[events]], np.full(len(none), main)))
    start = np.concatenate((trace.start[events], mark_time))
    time = np.concatenate((trace.start[calls], trace.end[waits], mark_time))
    own = np.concatenate((np.zeros(len(calls)), own, np.zeros(len(none))))
    target = np.concatenate((np.full(len(calls), -1), target, none))
    lag = np.concatenate((np.zeros(len(calls)), lag, np.zeros(len(none))))
    events = np.concatenate((events, none))
    keep = np.flatnonzero(line >= 0)
    # A wait comes after a launch by the same call.
    order = keep[np.lexsort((time[keep], start[keep], line[keep]))]
    return _Points(line[order], start[order], time[order], events[order], own[order], target[order], lag[order])


def _waits(
    trace: Trace, waiting: np.ndarray, run: _Run, calls: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Calls that wait, their own time, the row of `device_work` that each waited for (-1: nothing recorded), and how long
    after its end each returned; ns."""
    links, work = trace.links, trace.device_work
    waits = np.flatnonzero(waiting)
    freeing = links.calls("free", "allocate")
    freeing = freeing[trace.duration[freeing] > _SLOW]
    slow = _slow_calls(trace, calls)
    suspects = np.setdiff1d(np.union1d(freeing, slow), waits)
    events = np.concatenate((waits, suspects))
    events = events[run.holds(trace, events)]
    if len(work) == 0:
        events = events[np.isin(events, waits)]
        none = np.full(len(events), -1, dtype=np.int64)
        return events, trace.duration[events].astype(np.float64), none, np.zeros(len(events))

    target = _waited_for(trace, events)
    end = np.where(target >= 0, trace.end[work[np.maximum(target, 0)]], np.iinfo(np.int64).min // 2)
    waited = (target >= 0) & (end > trace.start[events]) & (trace.end[events] - end <= _RETURN)
    known = np.isin(events, waits)
    # A call that merely might have waited is one only where something ended during it.
    keep = known | waited
    events, target, end, waited, known = events[keep], target[keep], end[keep], waited[keep], known[keep]
    duration = trace.duration[events].astype(np.float64)
    usual = _usual(trace, events, duration, waited)
    own = np.where(waited, np.minimum(usual, duration), duration)
    back = float(np.median((trace.end[events] - end)[waited])) if waited.any() else _LATENCY
    back = min(back, _USUAL_RETURN)
    lag = np.where(waited, (trace.end[events] - end).astype(np.float64), back)
    # What had ended long before did not end this wait, and a wait for something that is not recorded depends on nothing.
    unexplained = ~waited & (duration > _LONG)
    return events, own, np.where(unexplained, -1, target), lag


def _slow_calls(trace: Trace, calls: np.ndarray) -> np.ndarray:
    """Launches that took far longer than their kind usually does, behind a deep queue."""
    if len(calls) == 0:
        return calls
    duration = trace.duration[calls].astype(np.float64)
    slow = duration > np.maximum(_SLOW, _SLOW_RATIO * _median_by(trace.name[calls], duration))
    if not slow.any():
        return calls[:0]
    linked = trace.links.launch >= 0
    launched = np.sort(trace.start[trace.links.launch[linked]])
    ended = np.sort(trace.end[trace.device_work[linked]])
    at = trace.start[calls]
    depth = np.searchsorted(launched, at) - np.searchsorted(ended, at)
    return calls[slow & (depth >= _DEEP)]


def _median_by(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Median of `value` among the rows of the same key, for each row."""
    order = np.lexsort((value, key))
    keys = key[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    count = np.diff(np.concatenate((first, [len(keys)])))
    middle = value[order][first + (count - 1) // 2]
    result = np.empty(len(key))
    result[order] = np.repeat(middle, count)
    return result


def _usual(trace: Trace, events: np.ndarray, duration: np.ndarray, waited: np.ndarray) -> np.ndarray:
    """What a call of each event's name takes where it need not wait; the shortest one where all had to."""
    name = trace.name[events]
    result = duration.copy()
    for one in np.unique(name).tolist():
        mine = name == one
        free = duration[mine & ~waited]
        result[mine] = np.median(free) if len(free) else min(float(duration[mine].min()), _LATENCY)
    return result


def _waited_for(trace: Trace, events: np.ndarray) -> np.ndarray:
    """The device operation that ended last before each call returned, among those launched before it did; a row of
    `device_work`, -1 for none. What the same thread launched last goes first: a readback waits for its own copy."""
    work, launch = trace.device_work, trace.links.launch
    by_end = np.argsort(trace.end[work], kind="stable")
    ends = trace.end[work][by_end]
    # A blocking copy launches the work that it waits for.
    began = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)[by_end]
    at = np.searchsorted(ends, trace.end[events] + _CLOCK, side="right") - 1
    target = at.copy()
    while True:
        later = (target >= 0) & (began[np.maximum(target, 0)] > trace.start[events])
        if not later.any():
            break
        target[later] -= 1
    result = np.where(target >= 0, by_end[np.maximum(target, 0)], -1)

    linked = np.flatnonzero(launch >= 0)
    by_call = linked[np.lexsort((trace.start[launch[linked]], trace.lane[launch[linked]]))]
    span = int(trace.end.max()) + 2 if len(trace) else 1
    key = trace.lane[launch[by_call]].astype(np.int64) * span + trace.start[launch[by_call]]
    mine = np.searchsorted(key, trace.lane[events].astype(np.int64) * span + trace.start[events], side="right") - 1
    own = np.where(mine >= 0, by_call[np.maximum(mine, 0)], 0)
    end = trace.end[work[own]]
    same_lane = (mine >= 0) & (trace.lane[launch[own]] == trace.lane[events])
    ends_it = same_lane & (end > trace.start[events]) & (end <= trace.end[events] + _CLOCK)
    return np.where(ends_it, own, result)


class _Nodes:
    """Nodes in order, from points and device operations."""

    def __init__(self, trace: Trace, run: _Run, points: _Points, device: np.ndarray, line_of_lane: np.ndarray) -> None:
        self.trace, self.run = trace, run
        self.points, self.device, self.line_of_lane = points, device, line_of_lane
        self.event = self.trace.device_work[device]
        self.start, self.end = self.trace.start[self.event], self.trace.end[self.event]
        self.launch = self.trace.links.launch[device]
        # Node that launches each operation: its call's point, before sorting into node order.
        self.launched_by = self._launch_points()
        self.order, self.place = self._order()

    def _launch_points(self) -> np.ndarray:
        event = self.points.event
        launches = np.flatnonzero((event >= 0) & (self.points.time == self.points.start))
        by_event = launches[np.argsort(event[launches], kind="stable")]
        # The first point of a call that both launches and waits is its launch.
        at = np.searchsorted(event[by_event], self.launch)
        at = np.minimum(at, max(0, len(by_event) - 1))
        found = (self.launch >= 0) & (event[by_event][at] == self.launch) if len(by_event) else np.zeros(len(at), bool)
        return np.where(found, by_event[at] if len(by_event) else -1, -1)

    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Node order, and the place of each point and operation in it."""
        key = self.start.astype(np.int64).copy()
        linked = self.launched_by >= 0
        key[linked] = np.maximum(key[linked], self.points.time[self.launched_by[linked]])
        lane = self.trace.lane[self.event].astype(np.int64)
        if len(key):
            # Streams stay in order even where the clocks of host and device disagree.
            span = int(max(key.max(), self.end.max())) + 2
            key = np.maximum.accumulate(lane * span + key) - lane * span
        keys = np.concatenate((self.points.time, key))
        kind = np.concatenate((np.zeros(len(self.points.time), np.int8), np.ones(len(key), np.int8)))
        order = np.lexsort((np.arange(len(keys)), kind, keys))
        place = np.empty(len(keys), dtype=np.int64)
        place[order] = np.arange(len(keys))
        return order, place

    def graph(self, stalls: Union) -> StepGraph:
        """The graph; `stalls` as in `build_graph`."""
        hosts, count = len(self.points.time), len(self.device)
        begin, gap = self._host_work()
        pause, lag, second, second_lag, held = self._device_waits()
        host_lines = int(self.points.line.max()) + 1 if hosts else 1
        lanes, streams = np.unique(self.trace.lane[self.event], return_inverse=True)
        ready = [self.earlier.get(int(lane), _NEVER) - int(self.run.begins[0]) for lane in lanes]
        shift = hosts  # device operations stand behind the points before sorting
        row_of_work = np.full(len(self.trace.device_work) + 1, -1, dtype=np.int64)
        row_of_work[self.device] = np.arange(count) + shift
        target = row_of_work[self.points.waits_for]
        earlier, earlier_end = self._earlier_targets()
        dependency = np.concatenate((target, self.launched_by))
        seconds = np.concatenate((np.full(hosts, -1, np.int64), np.where(second >= 0, second + shift, -1)))

        def placed(node: np.ndarray) -> np.ndarray:
            result = np.where(node >= 0, self.place[np.maximum(node, 0)], -1)[self.order]
            # What would come later in the order is no dependency.
            return np.where(result < np.arange(len(result)), result, -1)

        def ordered(host: np.ndarray, device: np.ndarray) -> np.ndarray:
            return np.concatenate((host, device))[self.order]

        lags = ordered(self.points.lag, lag)
        first, other, other_lag = placed(dependency), placed(seconds), ordered(np.zeros(hosts), second_lag)
        past = np.full(len(self.order), float(_NEVER))
        waits = np.flatnonzero(earlier >= 0)
        twin = self.place[earlier[waits] + shift]
        first[self.place[waits]] = -2 - twin
        np.maximum.at(past, twin, (earlier_end[waits] - self.run.begins[0]).astype(np.float64))
        # The loop looks at the second only after the first.
        only = (first == -1) & (other >= 0)
        first, lags = np.where(only, other, first), np.where(only, other_lag, lags)
        other = np.where(only, -1, other)
        return StepGraph(
            trace=self.trace,
            steps=self.run.steps if self.trace.steps.recorded else 1,
            lane=ordered(self.points.line, streams + host_lines),
            host_lines=host_lines,
            event=ordered(self.points.event, self.event),
            gap=ordered(gap + self.points.own, pause),
            duration=ordered(np.zeros(hosts), (self.end - self.start).astype(np.float64)),
            dependency=first,
            lag=lags,
            second=other,
            second_lag=other_lag,
            begin=ordered(begin, self.start),
            end=ordered(np.maximum(self.points.start, begin), self.end),
            own=ordered(self.points.own, np.zeros(count)),
            profiler=ordered(self._profiler(begin, stalls), np.zeros(count)),
            step=ordered(self._step_of_points(), self.trace.steps.of_event[self.event] - self.run.first),
            rows=np.concatenate((self._rows(begin), np.zeros((count, len(_ROW_KINDS)), np.int64)))[self.order],
            line_of_lane=self.line_of_lane,
            ready=np.concatenate((np.zeros(host_lines), np.maximum(ready, 0))),
            past=past,
            recorded_ns=self._recorded(),
            inferred={
                "launch": int((self.launched_by >= 0).sum()),
                "wait": int((target >= 0).sum()),
                "stream": int((second >= 0).sum()),
                "held without a reason": held,
            },
        )

    def _earlier_targets(self) -> tuple[np.ndarray, np.ndarray]:
        """For each point that waited for work from before the run: its twin, as a row of this run's operations (-1 for the
        other points), and when the work itself ended, ns. Once the run repeats, the wait is for the round before: the
        twin stands as far from the end of the last step, on its stream, as the work stood from the end of its own."""
        trace, work = self.trace, self.trace.device_work
        target = self.points.waits_for
        step = trace.steps.of_event[work]
        points = np.flatnonzero(target >= 0)
        outside = points[step[target[points]] < self.run.first]
        result, end = np.full(len(target), -1, dtype=np.int64), np.zeros(len(target), dtype=np.int64)
        mine = step[self.device] == self.run.last
        for point in outside.tolist():
            row = int(target[point])
            event = work[row]
            stream = trace.lane[work] == trace.lane[event]
            after = int(np.count_nonzero(stream & (step == step[row]) & (trace.start[work] > trace.start[event])))
            twins = np.flatnonzero(mine & (trace.lane[self.event] == trace.lane[event]))
            if len(twins):
                result[point] = twins[max(0, len(twins) - 1 - after)]
                end[point] = trace.end[event]
        return result, end

    def _host_work(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each point's host work begins, and how long it is; ns."""
        points = self.points
        begin = np.full(len(points.time), self.run.begins[0], dtype=np.int64)
        same = points.line[1:] == points.line[:-1]
        begin[1:] = np.where(same, np.maximum(points.time[:-1], begin[1:]), begin[1:])
        return begin, np.maximum(points.start - begin, 0).astype(np.float64)

    def _step_of_points(self) -> np.ndarray:
        """Step of the run that each point's work belongs to; the end of a step is the next one's beginning."""
        row = np.searchsorted(self.run.begins, self.points.start, side="left") - 1
        return np.clip(row, 0, self.run.steps - 1)

    def _profiler(self, begin: np.ndarray, stalls: Union) -> np.ndarray:
        """How much of each point's host work is the profiler's own: its stalls, and its code between two steps."""
        steps, finish = self.trace.steps, np.maximum(self.points.start, begin)
        own = stalls
        if steps.source == "profiler" and self.run.steps > 1:
            # Between the end of one `ProfilerStep#N` and the next lies the profiler's `step()`, and nothing else.
            first, last = self.run.first, self.run.last
            own = merge(own, union(steps.end[first:last], steps.start[first + 1 : last + 1]))
        on_main = self.points.line == 0
        return np.where(on_main, covered(own, begin, finish), 0).astype(np.float64)

    def _device_waits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
        """Pause behind the operation before, lag behind the launch, the other stream's operation that held each up with
        its lag, and how many were held up by nothing that is recorded."""
        count = len(self.device)
        lane = self.trace.lane[self.event]
        before = self._before(lane)
        same = before > _NEVER
        idle = np.where(same, self.start - before, 0).astype(np.float64)
        launched = np.where(self.launch >= 0, self.trace.start[np.maximum(self.launch, 0)], -1)
        has_launch = self.launched_by >= 0
        delay = np.where(has_launch, self.start - launched, 0).astype(np.float64)
        late = has_launch & (~same | (launched >= before))
        node = np.concatenate(([False], self.launch[1:] == self.launch[:-1])) if count else same
        late &= ~node  # the later nodes of a graph follow its earlier ones
        # Its own stream was idle, and still it began long after its launch, as another stream's operation ended.
        waited = late & (delay > _DRAINED)
        waited[waited] = self._held_by(np.flatnonzero(waited), lane) >= 0
        late &= ~waited
        latency = float(np.median(delay[late])) if late.any() else _LATENCY
        # Launched so long before that its predecessor, and nothing else, kept it waiting.
        queued = has_launch & same & ~node & (launched + latency <= before) & (idle <= _HELD)
        usual = float(np.clip(np.median(idle[queued]), 0, 2 * _PAUSE)) if queued.any() else _PAUSE
        # The device was ready, or nearly, when the launch came: the launch decided.
        by_launch = late | (has_launch & ~waited & ~node & same & (idle > usual + 1_000) & (delay <= 2 * latency))
        pause = np.where(same, np.where(by_launch, np.minimum(idle, usual), idle), 0.0)
        lag = np.where(by_launch, delay, np.minimum(delay, latency))
        held = same & ~by_launch & (idle > _HELD)
        head = np.concatenate(([True], lane[1:] != lane[:-1])) if count else held
        # What held up the first operation of a stream was there before the run, and is not there in each of its rounds.
        for row in np.flatnonzero(head & ~by_launch & ~waited & has_launch).tolist():
            self.earlier[int(lane[row])] = int(self.start[row] - min(idle[row], usual))
            pause[row] = min(idle[row], usual) if same[row] else 0.0
        held &= ~head
        first = ~same & has_launch & (delay > _LONG) & ~head
        suspects = np.flatnonzero(held | first | waited)
        second = np.full(count, -1, dtype=np.int64)
        second_lag = np.zeros(count)
        if len(suspects):
            other = self._held_by(suspects, lane)
            found = other >= 0
            rows = suspects[found]
            second[rows] = other[found]
            second_lag[rows] = self.start[rows] - self.end[other[found]]
            pause[rows] = usual
            lag[rows] = np.minimum(lag[rows], latency)
        return pause, lag, second, second_lag, int(held.sum() - (second[held] >= 0).sum())

    def _before(self, lane: np.ndarray) -> np.ndarray:
        """End of the operation before each one on its stream, in the run or before it; `_NEVER` for none."""
        result = np.full(len(lane), _NEVER, dtype=np.int64)
        if len(lane):
            result[1:] = np.where(lane[1:] == lane[:-1], self.end[:-1], _NEVER)
            first = np.flatnonzero(np.concatenate(([True], lane[1:] != lane[:-1])))
            result[first] = [self.earlier.get(int(one), _NEVER) for one in lane[first]]
        return result

    @cached_property
    def earlier(self) -> dict[int, int]:
        """When the work that was there before the run ended, by stream."""
        work = self.trace.device_work
        step = self.trace.steps.of_event[work]
        rows = work[((step < self.run.first) & (self.trace.start[work] < self.run.until))]
        rows = rows[self.trace.end[rows] <= self.trace.start[self.event].max(initial=0)]
        rows = rows[np.argsort(self.trace.end[rows], kind="stable")]
        return dict(zip(self.trace.lane[rows].tolist(), self.trace.end[rows].tolist(), strict=True))

    def _held_by(self, suspects: np.ndarray, lane: np.ndarray) -> np.ndarray:
        """The operation of another stream that ended just before each of these began, or -1."""
        by_end = np.argsort(self.end, kind="stable")
        at = np.searchsorted(self.end[by_end], self.start[suspects] + _CLOCK // 2, side="right") - 1
        result = np.full(len(suspects), -1, dtype=np.int64)
        for _ in range(4):  # one stream's operation may have ended between
            row = by_end[np.maximum(at, 0)]
            near = (at >= 0) & (self.start[suspects] - self.end[row] <= _NEAR)
            hit = (result < 0) & near & (lane[row] != lane[suspects]) & (row != suspects)
            result[hit] = row[hit]
            at = at - 1
        return result

    def _rows(self, begin: np.ndarray) -> np.ndarray:
        """Recorded rows that begin in each point's host work, by ROWS."""
        trace, points = self.trace, self.points
        result = np.zeros((len(begin), len(_ROW_KINDS)), dtype=np.int64)
        if len(begin) == 0 or len(trace) == 0:
            return result
        span = int(max(trace.end.max(), points.time.max())) + 2
        low = int(min(trace.start.min(), begin.min()))
        key = points.line.astype(np.int64) * span + begin - low
        finish = np.maximum(points.start, begin)
        for column, kinds in enumerate(_ROW_KINDS):
            events = trace.of(*kinds)
            line = self.line_of_lane[trace.lane[events]]
            events, line = events[line >= 0], line[line >= 0]
            at = np.searchsorted(key, line * span + trace.start[events] - low, side="right") - 1
            inside = (at >= 0) & (points.line[np.maximum(at, 0)] == line)
            inside &= trace.start[events] < finish[np.maximum(at, 0)]
            result[:, column] = np.bincount(at[inside], minlength=len(begin))
        return result

    def _recorded(self) -> float:
        """What the run took as recorded: from its beginning on the host to its last operation or host work, ns."""
        return float(max(self.run.until, int(self.end.max(initial=0))) - self.run.begins[0])
