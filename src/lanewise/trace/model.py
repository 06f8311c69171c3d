"""`Trace`: one recorded run as typed columns, with everything that reading it cost.

A `Trace` is immutable. Its stored tables are those of `schema.TABLES`, as read-only numpy arrays; what can be derived
from them (nesting, links, windows, health) is computed once, on first use, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.shown import Shown
from lanewise.trace.corrections.correct import Corrections, correct
from lanewise.trace.frames import is_user_frame
from lanewise.trace.groups import mask_of
from lanewise.trace.links import Links, link
from lanewise.trace.memo import once
from lanewise.trace.nesting import Nesting, nest
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import KINDS, TABLES, Kind, empty_table
from lanewise.trace.step_windows import Steps, find_steps

# polars takes longer to import than a small trace takes to explain: only the public frames need it.
if TYPE_CHECKING:
    import polars as pl

__all__ = ["Trace"]

# From this many names on, polars' regular expressions are worth their import.
_MANY_NAMES = 20_000

Table = Mapping[str, np.ndarray]


class Trace(Shown):
    """One recorded run.

    Attributes:
        names: event names, unique; `events.name` indexes it.
        texts: argument texts, unique; `*_text` columns index it; row 0 is "".
        metadata: top-level keys of the file other than the events, as plain JSON values, bounded. Untrusted.
        base_ns: wall-clock nanoseconds of time 0, or 0 if the file does not say.
        reading: what reading it cost.
    """

    def __init__(
        self,
        *,
        tables: Mapping[str, Table],
        names: Sequence[str],
        texts: Sequence[str],
        metadata: Mapping[str, Any],
        base_ns: int,
        reading: Reading,
    ) -> None:
        self._tables: dict[str, Table] = {}
        for table in TABLES:
            columns = dict(tables.get(table) or empty_table(table))
            for array in columns.values():
                array.flags.writeable = False
            self._tables[table] = columns
        self.names: Sequence[str] = names
        self.texts: Sequence[str] = texts
        self.metadata: Mapping[str, Any] = metadata
        self.base_ns = base_ns
        self.reading = reading
        self._of: dict[tuple[int, ...], np.ndarray] = {}

    def __getitem__(self, table: str) -> Table:
        """The columns of a stored table as read-only arrays; KeyError for a table that the schema does not have."""
        return self._tables[table]

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        return f"<Trace {self.reading.source or 'in memory'}: {len(self):,} events, {len(self['lanes']['side'])} lanes>"

    # -- the columns of `events`, by name ------------------------------------------------------------------------

    @property
    def lane(self) -> np.ndarray:
        """Lane of each event."""
        return self._tables["events"]["lane"]

    @property
    def kind(self) -> np.ndarray:
        """Kind of each event."""
        return self._tables["events"]["kind"]

    @property
    def name(self) -> np.ndarray:
        """Row of `names` of each event."""
        return self._tables["events"]["name"]

    @property
    def start(self) -> np.ndarray:
        """Start of each event, ns; of the device's by the host's clock."""
        return self.corrections.start

    @property
    def duration(self) -> np.ndarray:
        """Duration of each event, ns; what cannot be is cut."""
        return self.corrections.duration

    @once
    def corrections(self) -> Corrections:
        """Times as they can have been; the table `events` keeps them as recorded."""
        return correct(self["events"], self["lanes"], self["python_args"], self.names)

    @once
    def end(self) -> np.ndarray:
        """End of each event, ns."""
        return self.start + self.duration

    def of(self, *kinds: int) -> np.ndarray:
        """Ids of the events of the given kinds, in file order; read-only."""
        found = self._of.get(kinds)
        if found is None:
            wanted = mask_of(256, list(kinds))
            found = np.flatnonzero(wanted[self.kind])
            found.flags.writeable = False
            self._of[kinds] = found
        return found

    @once
    def device_work(self) -> np.ndarray:
        """Ids of kernels, copies and sets: the only source of device totals."""
        return self.of(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)

    @once
    def api_calls(self) -> np.ndarray:
        """Ids of runtime and driver calls."""
        return self.of(Kind.RUNTIME, Kind.DRIVER)

    # -- derived, computed once ----------------------------------------------------------------------------------

    @once
    def nesting(self) -> Nesting:
        """Parent and depth of every event on its lane."""
        return nest(self.lane, self.start, self.duration)

    @once
    def links(self) -> Links:
        """Launch <-> device work, operator <-> launch, forward <-> backward."""
        return link(self)

    @once
    def steps(self) -> Steps:
        """Steps as windows, and the step of every event."""
        return find_steps(self)

    def name_of(self, event: int) -> str:
        """Name of one event."""
        return self.names[int(self.name[event])]

    def name_mask(self, pattern: str) -> np.ndarray:
        """Which names match a regular expression (searched, not anchored); index it with `name` for events."""
        if len(self.names) >= _MANY_NAMES:
            return self.name_series.str.contains(pattern).to_numpy()
        search = re.compile(pattern).search
        return np.fromiter((search(name) is not None for name in self.names), dtype=bool, count=len(self.names))

    @once
    def user_frame_names(self) -> np.ndarray:
        """Which names are those of the program's own Python frames; index it with `name` for events."""
        return np.fromiter(map(is_user_frame, self.names), dtype=bool, count=len(self.names))

    def name_ids(self, *names: str) -> np.ndarray:
        """Rows of `names` that equal one of the given names."""
        rows = (self._row_of_name.get(name, -1) for name in names)
        return np.array(sorted(row for row in rows if row >= 0), dtype=np.int64)

    @once
    def _row_of_name(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    @once
    def name_series(self) -> pl.Series:
        """`names` as a polars series."""
        import polars as pl

        return pl.Series("name", self.names, dtype=pl.String)

    @once
    def text_series(self) -> pl.Series:
        """`texts` as a polars series."""
        import polars as pl

        return pl.Series("text", self.texts, dtype=pl.String)

    def lookup(self, table: str, events: np.ndarray) -> np.ndarray:
        """Row of a side table for each event, or -1. Rows of a side table are in event order."""
        keys = self._tables[table]["event"]
        if len(keys) == 0:
            return np.full(len(events), -1, dtype=np.int64)
        # In the type of the keys: searching for another type first converts all of them, on every call.
        at = np.searchsorted(keys, events.astype(keys.dtype))
        at = np.minimum(at, len(keys) - 1)
        return np.where(keys[at] == events, at, -1)

    # -- the public, readable form -------------------------------------------------------------------------------

    def frame(self, table: str = "events") -> pl.DataFrame:
        """A stored table as a polars frame, names and texts filled in; `events` also gets the derived columns."""
        import polars as pl

        columns: dict[str, Any] = {}
        corrected = {"start": self.start, "duration": self.duration} if table == "events" else {}
        if table in {"events", "lanes"}:
            columns["id"] = np.arange(len(next(iter(self._tables[table].values()))), dtype=np.int64)
        for name, array in {**self._tables[table], **corrected}.items():
            if name == "name":
                columns[name] = self.name_series.gather(array)
            elif name.endswith("_text") or (table == "flows" and name == "category"):
                columns[name.removesuffix("_text")] = self.text_series.gather(array)
            elif name == "kind":
                columns[name] = pl.Series(name, KINDS, dtype=pl.String).gather(array)
            elif array.dtype.kind == "U":
                columns[name] = pl.Series(name, array.tolist(), dtype=pl.String)
            else:
                columns[name] = array
        if table == "events":
            columns["depth"] = self.nesting.depth
            columns["parent"] = self.nesting.parent
            columns["step"] = self.steps.of_event
        return pl.DataFrame(columns)

    @once
    def events(self) -> pl.DataFrame:
        """All events, one row per slice, with names, depth, parent and step."""
        return self.frame("events")

    @once
    def lanes(self) -> pl.DataFrame:
        """All lanes."""
        return self.frame("lanes")
