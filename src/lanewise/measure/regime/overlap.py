"""What runs beside what on a device: computation, copies and communication, per stream and together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.trace.intervals import Union, intersect, merge, subtract, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Overlap", "measure_overlap"]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Overlap on the busiest device, over the whole recording; times in ns.

    Attributes:
        compute, copies, communication: sets of time in which each runs.
        copies_hidden, communication_hidden: time of these during which computation runs as well.
        streams: columns `stream, label, ops, busy, compute, copies, communication, alone`; `alone` is the time in which
            no other stream of the device does anything.
        concurrent: time in which two streams or more are busy.
    """

    compute: Union
    copies: Union
    communication: Union
    copies_hidden: int
    communication_hidden: int
    streams: Columns
    concurrent: int

    @property
    def communication_hidden_share(self) -> float:
        """Share of the communication that computation hides; 0 without communication."""
        return self.communication_hidden / self.communication.total if self.communication.total else 0.0

    @property
    def copies_hidden_share(self) -> float:
        """Share of the copies that computation hides; 0 without copies."""
        return self.copies_hidden / self.copies.total if self.copies.total else 0.0


def measure_overlap(facts: Core) -> Overlap:
    """Measure overlap on the device with the most work."""
    trace = facts.trace
    work = trace.device_work
    mine = (trace["lanes"]["process"] == facts.classes.device)[trace.lane[work]]
    copying = mine & (trace.kind[work] != Kind.KERNEL)
    communicating = mine & facts.is_family("communication")
    computing = mine & ~copying & ~communicating

    def time_of(chosen: np.ndarray) -> Union:
        events = work[chosen]
        return union(trace.start[events], trace.end[events])

    compute, copies, communication = time_of(computing), time_of(copying), time_of(communicating)
    lanes = np.unique(trace.lane[work[mine]])
    busy = {int(lane): time_of(mine & (trace.lane[work] == lane)) for lane in lanes}
    rows: dict[str, list[int | str]] = {
        name: [] for name in ("stream", "label", "ops", "busy", "compute", "copies", "communication", "alone")
    }
    for lane, own in busy.items():
        here = trace.lane[work] == lane
        others = [set_ for other, set_ in busy.items() if other != lane]
        rows["stream"].append(str(trace["lanes"]["thread"][lane]))
        rows["label"].append(str(trace["lanes"]["label"][lane]))
        rows["ops"].append(int(np.count_nonzero(mine & here)))
        rows["busy"].append(own.total)
        for name, kind in (("compute", computing), ("copies", copying), ("communication", communicating)):
            rows[name].append(time_of(kind & here).total)
        rows["alone"].append(subtract(own, merge(*others)).total if others else own.total)
    hidden_copies = intersect(copies, compute).total
    hidden_communication = intersect(communication, compute).total
    return Overlap(
        compute,
        copies,
        communication,
        hidden_copies,
        hidden_communication,
        _columns(rows),
        _concurrent(list(busy.values())),
    )


def _columns(rows: dict[str, list[int | str]]) -> Columns:
    columns: dict[str, np.ndarray] = {}
    for name, values in rows.items():
        columns[name] = np.array(values, dtype=object if name in {"stream", "label"} else np.int64)
    return Columns(columns).sorted_by("busy")


def _concurrent(sets: list[Union]) -> int:
    """Time in which at least two of the sets run."""
    if len(sets) < 2:
        return 0
    time = np.concatenate([edge for set_ in sets for edge in (set_.start, set_.end)])
    change = np.concatenate(
        [np.full(len(edge), sign) for set_ in sets for edge, sign in ((set_.start, 1), (set_.end, -1))]
    )
    order = np.lexsort((change, time))
    level = np.cumsum(change[order])
    return int(np.diff(time[order])[level[:-1] >= 2].sum())
