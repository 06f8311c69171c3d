"""Which device operation waits for one of another stream, where the program says so: at its communication.

What a stream waits for is in no column of a trace. That it waits is: a collective first makes its own stream wait for the
one that computes, and whoever waits for the collective makes the stream that computes wait for it. A recording in which
the host was slow shows nothing of that in its times, as all was over before the next operation came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.inferred.waits import CLOCK
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.replay.inferred.device_order import DeviceOrder
    from lanewise.trace.model import Trace

__all__ = ["stream_waits"]

_WAITS = r"StreamWaitEvent$"
_FOR_WORK = "wait"
"""Name under which torch records that a program waits for a collective or a transfer."""


def stream_waits(device: DeviceOrder, line_of_lane: np.ndarray) -> np.ndarray:
    """The operation of another stream that each operation waits for, -1 for none; rows of `device`.

    Args:
        device: operations of a run. line_of_lane: host line of each lane of the trace.
    """
    trace = device.trace
    result = np.full(len(device), -1, dtype=np.int64)
    if not len(trace["collective_args"]):
        return result
    line = np.where(device.launch >= 0, line_of_lane[trace.lane[np.maximum(device.launch, 0)]], -1)
    for one in np.unique(line[line >= 0]).tolist():
        called, waits = _called(trace, line_of_lane == one)
        mine = np.flatnonzero(line == one)
        _of_line(device, mine[np.argsort(trace.start[device.launch[mine]], kind="stable")], called, waits, result)
    return result


def _called(trace: Trace, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When a line makes a stream wait in a collective or in the wait for one, in order, and which is the latter."""
    args = trace["collective_args"]
    here = np.flatnonzero(trace.kind[args["event"]] == Kind.OPERATOR)
    here = here[lanes[trace.lane[args["event"][here]]]]
    order = trace.links.calls("order")
    order = order[lanes[trace.lane[order]] & trace.name_mask(_WAITS)[trace.name[order]]]
    event = args["event"][here].astype(np.int64)
    begun = np.sort(trace.start[order])
    held = np.searchsorted(begun, trace.start[event]) < np.searchsorted(begun, trace.end[event])
    event = event[held]
    waits = np.array(
        [trace.texts[one] == _FOR_WORK for one in args["collective_text"][here[held]].tolist()], dtype=bool
    )
    by_start = np.argsort(trace.start[event], kind="stable")
    return trace.start[event][by_start], waits[by_start]


def _of_line(device: DeviceOrder, mine: np.ndarray, called: np.ndarray, waits: np.ndarray, result: np.ndarray) -> None:
    """Fills in what one line's operations wait for.

    Args:
        device: operations. mine: those that this line launches, in that order. called, waits: as `_called` has them.
        result: of each operation.
    """
    launched = device.trace.start[device.launch[mine]]
    # What is launched next is the kernel of a collective, of several in one group the same.
    after = np.searchsorted(launched, called)
    lane = device.lane[mine]
    kernel = after[~waits & (after < len(mine))]
    kernel = kernel[np.isin(lane[kernel], lane[kernel[lane[kernel] != lane[kernel - 1]]])]
    sends = mask_of(len(mine), kernel)
    index = np.arange(len(mine))
    before = np.maximum.accumulate(np.where(sends, -1, index))
    following = np.minimum.accumulate(np.where(sends, len(mine), index)[::-1])[::-1]
    open_: list[int] = []
    for at, for_work in zip(after.tolist(), waits.tolist(), strict=True):
        if at == len(mine):
            break
        if not for_work:
            if sends[at] and at not in open_:
                open_.append(at)
                _note(device, int(mine[at]), int(mine[before[at]]) if before[at] >= 0 else -1, result)
        elif following[at] < len(mine):
            row = int(mine[following[at]])
            # Mostly it waits for what was sent last; what was under way when the operation began it did not wait for.
            found = next((one for one in reversed(open_) if _over(device, int(mine[one]), row)), -1)
            if found >= 0:
                open_.remove(found)
                _note(device, row, int(mine[found]), result)


def _over(device: DeviceOrder, one: int, row: int) -> bool:
    """Whether an operation was over when another one began."""
    return bool(device.end[one] <= device.start[row] + CLOCK // 2)


def _note(device: DeviceOrder, row: int, one: int, result: np.ndarray) -> None:
    # Of several that it waits for, the last to end.
    if one >= 0 and _over(device, one, row) and (result[row] < 0 or device.end[one] > device.end[result[row]]):
        result[row] = one
