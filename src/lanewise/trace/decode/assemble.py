"""Batches, in file order -> the tables of a `Trace`.

What needs the whole file happens here: one numbering of names, texts and lanes, the start of the trace, slices written
as two rows, the lanes of flow ends, labels. Columns are joined one at a time and their parts freed, so that the peak
stays near the size of the result.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from lanewise.trace.decode.batch import Batch, Columns, Mark, Place
from lanewise.trace.decode.interning import Interner
from lanewise.trace.decode.times import MISSING
from lanewise.trace.dialects import classify, generation_of
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import TABLES, empty_table

__all__ = ["Assembled", "Assembler"]

_FAR = 7 * 86_400 * 10**9
"""ns; a start further than a week from most others is no time of this run."""

_HOUR = 3600 * 10**9
_ABSOLUTE = 10**18
"""ns; a clock that shows more than this counts from 1970 (it passed this mark in 2001)."""

_SIDES_OF_START = ("host", "device", "none")
_SIDES_OF_END = ("device", "host", "none")


class Assembled:
    """The parts of a `Trace`."""

    def __init__(self, tables: dict[str, Columns], names: list[str], texts: list[str], base_ns: int) -> None:
        self.tables = tables
        self.names = names
        self.texts = texts
        self.base_ns = base_ns


class _Numbering:
    """Numbers of one decoder -> numbers of the whole trace."""

    def __init__(self) -> None:
        self._known = np.zeros(1024, dtype=np.uint32)
        self._count = 0

    def extend(self, numbers: list[int]) -> None:
        count = self._count + len(numbers)
        if count > len(self._known):
            self._known = np.concatenate([self._known, np.zeros(count, dtype=np.uint32)])
        self._known[self._count : count] = numbers
        self._count = count

    def of(self, local: np.ndarray) -> np.ndarray:
        return self._known[local]


class Assembler:
    """Takes batches in file order; `finish` gives the tables once."""

    def __init__(self) -> None:
        self._names: Interner[str] = Interner()
        self._texts: Interner[str] = Interner()
        self._places: Interner[Place] = Interner()
        self._texts.number("")
        self._numberings: dict[object, tuple[_Numbering, _Numbering, _Numbering]] = {}
        self._parts: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
        self._marks: list[Mark] = []
        self._labels: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.events = 0

    def add(self, batch: Batch, decoder: object) -> None:
        """Append a batch that `decoder` made; batches of one decoder must come in the order it made them."""
        if decoder not in self._numberings:
            self._numberings[decoder] = (_Numbering(), _Numbering(), _Numbering())
        names, texts, places = self._numberings[decoder]
        names.extend(self._names.numbers(batch.names))
        texts.extend(self._texts.numbers(batch.texts))
        places.extend(self._places.numbers(batch.places))
        for mark in batch.marks:
            event = mark.event + self.events if mark.event >= 0 else -1
            self._marks.append(mark._replace(place=int(places.of(np.array([mark.place]))[0]), event=event))
        for place, label in batch.labels:
            if label:
                self._labels[lane_key(place.process), lane_key(place.thread)].append(label)
        for table, columns in batch.tables.items():
            parts = self._parts[table]
            for name, column in columns.items():
                if name == "name":
                    column = names.of(column)
                elif name == "place":
                    column = places.of(column)
                elif name.endswith("_text"):
                    column = texts.of(column)
                elif name == "event":
                    column = column + np.uint32(self.events)
                parts[name].append(column)
        self.events += len(batch.tables["events"]["name"])

    def finish(self, offset_ns: int, reading: Reading) -> Assembled:
        """The tables; `offset_ns` is the file's `baseTimeNanoseconds`, 0 if it has none."""
        joined = {table: self._join(table) for table in list(self._parts)}
        for table in TABLES:
            if table not in joined:
                joined[table] = _without_rows(table)
        events = joined["events"]
        self._close(events, reading)
        lanes = self._lanes(joined, reading)
        base = _base(events["start"], reading)
        for table, column in (
            ("events", "start"),
            ("memory", "time"),
            ("flows", "time"),
            ("instants", "time"),
            ("counters", "time"),
        ):
            _relative(joined[table][column], base)
        _lend_grids(joined)
        joined["lanes"] = lanes
        self._count(joined, reading)
        flow_categories = {place.category for place in self._places}
        reading.generation = generation_of(set(reading.rows_by_category), flow_categories, offset_ns > 0)
        tables = {
            table: {name: _fit(joined[table].pop(name), spec.dtype) for name, spec in columns.items()}
            for table, columns in TABLES.items()
        }
        known = offset_ns > 0 or base > _ABSOLUTE
        return Assembled(tables, list(self._names), list(self._texts), offset_ns + base if known else 0)

    def _join(self, table: str) -> Columns:
        parts = self._parts.pop(table)
        joined: Columns = {}
        for name in list(parts):
            arrays = parts.pop(name)
            joined[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return joined

    # -- slices written as two rows --------------------------------------------------------------------------------

    def _close(self, events: Columns, reading: Reading) -> None:
        """Pair begins with ends: synchronous ones last in, first out on a lane, asynchronous ones by id and name."""
        if not self._marks:
            return
        places = list(self._places)
        keys = [lane_key(place.process) + "\0" + lane_key(place.thread) for place in places]
        open_slices: dict[tuple[str, str], list[Mark]] = defaultdict(list)
        ends: list[Mark] = []
        for mark in sorted(self._marks, key=lambda mark: mark.time):  # stable: file order decides between equal times
            lane = keys[mark.place] if not mark.key else lane_key(places[mark.place].process)
            waiting = open_slices[lane, mark.key]
            if mark.event >= 0:
                waiting.append(mark)
            elif waiting and mark.time != MISSING:
                begin = waiting.pop()
                events["duration"][begin.event] = mark.time - begin.time if begin.time != MISSING else 0
            else:
                ends.append(mark)
        if ends:
            reading.lose("slice end without a begin", "", len(ends))
        unclosed = sum(len(waiting) for waiting in open_slices.values())
        if unclosed:
            reading.repair("slice begin without an end", "", unclosed)
        self._marks.clear()

    # -- lanes -----------------------------------------------------------------------------------------------------

    def _lanes(self, joined: dict[str, Columns], reading: Reading) -> Columns:
        """Number the lanes by first appearance of a slice (then of an allocator event); set every `lane` column."""
        places = list(self._places)
        side = [classify(place.category)[0].side for place in places]
        ids = [(lane_key(place.process), lane_key(place.thread)) for place in places]
        lanes: Interner[tuple[str, str, str]] = Interner()
        lane_of_place = np.full(max(len(places), 1), -1, dtype=np.int32)
        for table in ("events", "memory"):
            for number in _by_first_use(joined[table]["place"], len(places)):
                lane_side = side[number] if table == "events" else "host"
                lane_of_place[number] = lanes[lane_side, *ids[number]]
        for table in ("events", "memory"):
            joined[table]["lane"] = lane_of_place[joined[table]["place"]]

        def lane_on(sides: tuple[str, ...]) -> np.ndarray:
            found = [next((lanes[s, *key] for s in sides if (s, *key) in lanes), -1) for key in ids]
            return np.array(found or [-1], dtype=np.int32)

        starts, ends = lane_on(_SIDES_OF_START), lane_on(_SIDES_OF_END)
        flows = joined["flows"]
        flows["lane"] = np.where(flows["end"] == 0, starts[flows["place"]], ends[flows["place"]])
        category = np.array(self._texts.numbers([place.category for place in places]) or [0], dtype=np.uint32)
        flows["category"] = category[flows["place"]]
        for table in ("instants", "counters"):
            joined[table]["lane"] = starts[joined[table]["place"]]
        keys = list(lanes)
        return {
            "side": np.array([key[0] for key in keys], dtype="U6"),
            "process": np.array([key[1] for key in keys], dtype="U64"),
            "thread": np.array([key[2] for key in keys], dtype="U64"),
            "label": np.array([self._label(*key) for key in keys], dtype="U128"),
        }

    def _label(self, side: str, process: str, thread: str) -> str:
        """The last name that the file gives a lane of this side: the profiler improves on its first guess."""
        names = self._labels.get((process, thread), ())
        fitting = [name for name in names if name.lower().startswith("stream") == (side == "device")]
        if fitting:
            return fitting[-1]
        return {"device": f"stream {thread}", "host": f"thread {thread}"}.get(side, thread)

    def _count(self, joined: dict[str, Columns], reading: Reading) -> None:
        places = list(self._places)
        for table in ("events", "memory", "flows", "instants", "counters"):
            counts = np.bincount(joined[table]["place"], minlength=len(places)) if len(places) else ()
            for place, count in zip(places, counts, strict=False):
                if not count:
                    continue
                category = place.category
                reading.rows_by_category[category] = reading.rows_by_category.get(category, 0) + int(count)
                if table == "events" and not classify(category)[1]:
                    reading.unknown_categories[category] = reading.unknown_categories.get(category, 0) + int(count)


_STREAM = re.compile(r"stream (\d+)", re.IGNORECASE)


def lane_key(value: int | str | float) -> str:
    """A process or thread id as text: the same for 7, 7.0, "7" and "stream 7"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    stream = _STREAM.fullmatch(text)
    return (stream[1] if stream else text)[:64]


def _by_first_use(place: np.ndarray, count: int) -> list[int]:
    """The numbers that occur in `place`, in order of first occurrence."""
    first = np.full(count, -1, dtype=np.int64)
    first[place[::-1]] = np.arange(len(place) - 1, -1, -1)
    used = np.flatnonzero(first >= 0)
    return used[np.argsort(first[used])].tolist()


def _base(start: np.ndarray, reading: Reading) -> int:
    """The earliest sane start. Insane ones (absent, or out of all proportion) become `MISSING`, and are counted."""
    absent = start == MISSING
    known = start[~absent] if absent.any() else start
    if len(known) == 0:
        return 0
    low, high = int(known.min()), int(known.max())
    if low > 0 and high - low <= _FAR:
        return low
    middle = (len(known) - 1) // 2
    median = int(np.partition(known, middle)[middle])
    sane = (np.abs(start - median) <= _FAR) & ~absent
    if median > _HOUR:
        sane &= start > 0
    insane = ~sane & ~absent
    if insane.any():
        reading.repair("start outside the recording", f"{int(start[insane][0])} ns", int(np.count_nonzero(insane)))
        start[insane] = MISSING
    return int(start[sane].min()) if sane.any() else 0


def _relative(time: np.ndarray, base: int) -> None:
    absent = time == MISSING
    time -= base
    if absent.any():
        time[absent] = -1


def _lend_grids(joined: dict[str, Columns]) -> None:
    """Kernels without a grid take that of their launch: some ROCm builds write it only there."""
    launches = joined.get("launches")
    kernels = joined["kernel_args"]
    if launches is None or len(launches["correlation"]) == 0 or len(kernels["event"]) == 0:
        return
    order = np.argsort(launches["correlation"], kind="stable")
    ids = launches["correlation"][order]
    wanted = joined["events"]["correlation"][kernels["event"]]
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    lent = np.flatnonzero((ids[at] == wanted) & (wanted > 0) & (kernels["grid_x"] == -1))
    source = order[at[lent]]
    for axis, name in enumerate("xyz"):
        kernels[f"grid_{name}"][lent] = launches["grid"][source, axis]
        kernels[f"block_{name}"][lent] = launches["block"][source, axis]
    absent = kernels["shared_memory"][lent] == -1
    kernels["shared_memory"][lent[absent]] = launches["shared_memory"][source[absent]]


def _without_rows(table: str) -> Columns:
    columns = empty_table(table)
    columns["place"] = np.empty(0, dtype=np.int64)
    return columns


def _fit(column: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(column, dtype=dtype)
