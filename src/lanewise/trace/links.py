"""Joins: launch <-> device work, operator <-> launch, forward <-> backward.

Rules and their order of preference are those of trace-format section 7. What cannot be joined is labelled, not dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.dialects import api_role
from lanewise.trace.groups import mask_of
from lanewise.trace.memo import once
from lanewise.trace.nesting import innermost, nearest
from lanewise.trace.schema import ENGINE_PREFIX, Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["Links", "link"]

# Above this share of rows with `External id` equal to `correlation` the field is a copy, not a link (trap L5).
_COPIED_ID_SHARE = 0.99

_LAUNCH_FLOWS = ("ac2g", "async_cpu_to_gpu", "async_gpu", "async")


class Links:
    """Joins of one trace. `device` below means row i of `Trace.device_work`.

    Attributes:
        launch: API call that launched each device op, or -1, shape (device,).
        operator: innermost operator around that launch, or -1, shape (device,).
        orphan: 0 linked, 1 head orphan (launched before the recording), 2 other orphan, shape (device,).
        ambiguous: number of device ops whose correlation id belongs to several API calls.
        external_id_usable: whether `External id` on API and device rows is a link in this file.
    """

    def __init__(
        self,
        trace: Trace,
        launch: np.ndarray,
        operator: np.ndarray,
        orphan: np.ndarray,
        ambiguous: int,
        external_id_usable: bool,
    ) -> None:
        self._trace = trace
        self.launch = launch
        self.operator = operator
        self.orphan = orphan
        self.ambiguous = ambiguous
        self.external_id_usable = external_id_usable

    def launch_of(self, work: np.ndarray) -> np.ndarray:
        """API call that launched each of these device operations, or -1. Both are rows of the trace; same shape."""
        return self.launch[np.searchsorted(self._trace.device_work, work)]

    @once
    def role_of_name(self) -> np.ndarray:
        """API role (text) of every name that a runtime or driver row has; `other` for the rest."""
        trace = self._trace
        roles = np.full(len(trace.names), "other", dtype=object)
        for name in np.unique(trace.name[trace.api_calls]).tolist():
            roles[name] = api_role(trace.names[int(name)])
        return roles

    def names_of(self, *roles: str) -> np.ndarray:
        """Whether each name is that of an API call of one of the given roles; index it with `name` for events."""
        return np.isin(self.role_of_name.astype(str), roles)

    def calls(self, *roles: str) -> np.ndarray:
        """API calls (event ids) of the given roles, in file order."""
        calls = self._trace.api_calls
        return calls[self.names_of(*roles)[self._trace.name[calls]]]

    @once
    def device_count_of_launch(self) -> np.ndarray:
        """Number of device ops of each event; more than one for a graph launch. Shape (events,)."""
        linked = self.launch[self.launch >= 0]
        return np.bincount(linked, minlength=len(self._trace)).astype(np.int64)

    @once
    def launches(self) -> np.ndarray:
        """API calls that enqueue device work: launch, graph launch, copy and set roles, or any call with device work."""
        trace = self._trace
        calls = trace.api_calls
        launching = self.names_of("launch", "graph_launch", "copy", "set")[trace.name[calls]]
        return calls[launching | (self.device_count_of_launch[calls] > 0)]

    @once
    def graph_nodes(self) -> np.ndarray:
        """Whether each device op is a node of a replayed graph, bool, shape (device,)."""
        graph = mask_of(len(self._trace) + 1, self.calls("graph_launch"))
        return graph[self.launch]

    @once
    def forward_of(self) -> np.ndarray:
        """The forward operator of each backward operator, or -1 (also for all other events). Shape (events,)."""
        return _forward(self._trace)


def link(trace: Trace) -> Links:
    """Compute the joins of a trace."""
    device = trace.device_work
    usable = _external_id_usable(trace)
    launch, ambiguous = _by_correlation(trace, device)
    if (launch < 0).any():
        launch = np.where(launch >= 0, launch, _by_flow(trace, device, launch < 0))
    launch = _one_kernel_each(trace, device, launch)
    if usable and (launch < 0).any():
        launch = _launch_by_external_id(trace, device, launch)
    operator = _operator_of(trace, launch)
    if usable:
        operator = _by_external_id(trace, device, launch, operator)
    return Links(trace, launch, operator, _orphans(trace, device, launch), ambiguous, usable)


def _is_id(value: np.ndarray) -> np.ndarray:
    """Whether each number is an id: not absent, and not the 0 of rows that have none. Ids of 64 bits wrap below zero."""
    return (value != -1) & (value != 0)


def _external_id_usable(trace: Trace) -> bool:
    rows = np.isin(trace.kind, (Kind.RUNTIME, Kind.DRIVER, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))
    events = trace["events"]
    both = rows & (events["external_id"] >= 0) & (events["correlation"] >= 0)
    if not both.any():
        return True
    same = events["external_id"][both] == events["correlation"][both]
    return float(np.mean(same)) <= _COPIED_ID_SHARE


def _by_correlation(trace: Trace, device: np.ndarray) -> tuple[np.ndarray, int]:
    """Launch by correlation id; where an id is used twice, the latest call that started before the work did."""
    correlation = trace["events"]["correlation"]
    calls = trace.api_calls
    calls = calls[_is_id(correlation[calls])]
    wanted = correlation[device]
    result = np.full(len(device), -1, dtype=np.int64)
    if len(calls) == 0 or len(device) == 0:
        return result, 0
    ids, rank = np.unique(correlation[calls], return_inverse=True)
    low = int(min(trace.start[calls].min(), trace.start[device].min()))
    span = int(max(trace.start[calls].max(), trace.start[device].max())) - low + 1
    key = rank * span + (trace.start[calls] - low)
    order = np.argsort(key, kind="stable")
    at = np.searchsorted(ids, wanted)
    known = (at < len(ids)) & _is_id(wanted)
    known[known] = ids[at[known]] == wanted[known]
    first = np.searchsorted(rank[order], at, side="left")
    last = np.searchsorted(key[order], at * span + (trace.start[device] - low), side="right") - 1
    chosen = np.maximum(first, last)
    result[known] = calls[order[np.minimum(chosen[known], len(calls) - 1)]]
    uses = np.bincount(rank, minlength=len(ids))
    ambiguous = int(np.count_nonzero(uses[at[known]] > 1))
    return result, ambiguous


def _by_flow(trace: Trace, device: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Launch by the profiler's flow arrows, for device ops without a usable correlation id."""
    result = np.full(len(device), -1, dtype=np.int64)
    flows = trace["flows"]
    if len(flows["id"]) == 0:
        return result
    wanted = [row for row, text in enumerate(trace.texts) if text in _LAUNCH_FLOWS]
    chosen = np.isin(flows["category"], wanted)
    starts = np.flatnonzero(chosen & (flows["end"] == 0))
    ends = np.flatnonzero(chosen & (flows["end"] == 1))
    if len(starts) == 0 or len(ends) == 0:
        return result
    caller = innermost(trace.nesting, trace.lane, trace.start, trace.end, flows["lane"][starts], flows["time"][starts])
    caller_of_id = dict(zip(flows["id"][starts].tolist(), caller.tolist(), strict=True))
    arrival = {
        (lane, time): flow
        for lane, time, flow in zip(
            flows["lane"][ends].tolist(), flows["time"][ends].tolist(), flows["id"][ends].tolist(), strict=True
        )
    }
    kinds = trace.kind
    for row in np.flatnonzero(missing).tolist():
        event = int(device[row])
        flow = arrival.get((int(trace.lane[event]), int(trace.start[event])))
        call = caller_of_id.get(flow, -1) if flow is not None else -1
        if call >= 0 and kinds[call] in (Kind.RUNTIME, Kind.DRIVER):
            result[row] = call
    return result


# Calls that start one kernel, however often its id is used again. A graph launch, a launch on several devices and the
# calls of other back ends may start many.
_ONE_KERNEL = re.compile(
    r"^(?:cuda|cu|hip|hipExt|hipModule|hipExtModule)Launch(?:Cooperative)?Kernel(?:Ex|ExC)?(?:_\w+)?$"
)


def _one_kernel_each(trace: Trace, device: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """An ordinary launch starts one kernel: of several that carry its id, only the first after it is its own.

    Rows of one kernel that a merged file repeats begin together and stay.
    """
    rows = np.flatnonzero((launch >= 0) & (trace.kind[device] == Kind.KERNEL))
    if len(rows) == 0 or len(np.unique(launch[rows])) == len(rows):
        return launch
    calls = trace.api_calls
    used = np.unique(trace.name[calls])
    single = np.zeros(len(trace.names), dtype=bool)
    single[used] = [_ONE_KERNEL.match(trace.names[int(name)]) is not None for name in used.tolist()]
    rows = rows[single[trace.name[launch[rows]]]]
    start = trace.start[device[rows]]
    early = start < trace.start[launch[rows]]
    order = np.lexsort((start, early, launch[rows]))
    first = np.concatenate(([True], np.diff(launch[rows][order]) != 0)) if len(order) else np.empty(0, bool)
    own = start[order][np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))] if len(order) else start
    result = launch.copy()
    result[rows[order][start[order] != own]] = -1
    return result


_ROLES = {Kind.KERNEL: ("launch",), Kind.MEMCPY: ("copy",), Kind.MEMSET: ("set",)}


def _launch_by_external_id(trace: Trace, device: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Launches of the operator whose `External id` a device op carries, in order: the first to the first, and so on."""
    external = trace["events"]["external_id"]
    result = launch.copy()
    idle = np.ones(len(trace), dtype=bool)
    idle[launch[launch >= 0]] = False
    for kind, roles in _ROLES.items():
        rows = np.flatnonzero((launch < 0) & (trace.kind[device] == kind) & (external[device] > 0))
        calls = trace.api_calls
        calls = calls[idle[calls] & (external[calls] > 0)]
        calls = calls[[api_role(trace.name_of(call)) in roles for call in calls.tolist()]] if len(rows) else calls[:0]
        if len(calls) == 0:
            continue
        calls = calls[np.lexsort((trace.start[calls], external[calls]))]
        rows = rows[np.lexsort((trace.start[device[rows]], external[device[rows]]))]
        ids = external[calls]
        wanted = external[device[rows]]
        turn = np.arange(len(rows)) - np.searchsorted(wanted, wanted, side="left")
        at = np.searchsorted(ids, wanted, side="left") + turn
        good = at < len(ids)
        good[good] = ids[at[good]] == wanted[good]
        good[good] = trace.start[calls[at[good]]] <= trace.start[device[rows[good]]]
        result[rows[good]] = calls[at[good]]
    return result


def _operator_of(trace: Trace, launch: np.ndarray) -> np.ndarray:
    result = np.full(len(launch), -1, dtype=np.int64)
    linked = np.flatnonzero(launch >= 0)
    result[linked] = nearest(trace.nesting.parent, trace.kind == Kind.OPERATOR, launch[linked])
    return result


def _by_external_id(trace: Trace, device: np.ndarray, launch: np.ndarray, operator: np.ndarray) -> np.ndarray:
    """Fill in operators from `External id`, of the device row or of its launch, where nesting gave none."""
    external = trace["events"]["external_id"]
    operators = trace.of(Kind.OPERATOR)
    operators = operators[external[operators] > 0]
    rows = np.flatnonzero(operator < 0)
    if len(operators) == 0 or len(rows) == 0:
        return operator
    ids = external[device[rows]]
    of_launch = np.where(launch[rows] >= 0, external[launch[rows]], -1)
    ids = np.where(ids > 0, ids, of_launch)
    order = np.argsort(external[operators], kind="stable")
    sorted_ids = external[operators][order]
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    result = operator.copy()
    result[rows] = np.where((sorted_ids[at] == ids) & (ids > 0), operators[order[at]], -1)
    return result


def _orphans(trace: Trace, device: np.ndarray, launch: np.ndarray) -> np.ndarray:
    orphan = np.zeros(len(device), dtype=np.uint8)
    missing = launch < 0
    if not missing.any():
        return orphan
    start = trace.start[device]
    first_linked = int(start[~missing].min()) if (~missing).any() else np.iinfo(np.int64).max
    # Work of earlier steps may still run when recording starts; it can only be at the head of the file (trap L1).
    orphan[missing] = np.where(start[missing] <= first_linked, 1, 2)
    if not (~missing).any():
        orphan[missing] = 2
    return orphan


def _forward(trace: Trace) -> np.ndarray:
    """Latest-starting forward row with the backward row's sequence number that began before it, and is its forward by name.

    Several forward rows share a number: outer operators only peek at the counter, the innermost consumes it. A node that no
    row made (a custom function in C++) shares its number with whatever ran next to it. Every thread has a counter of its
    own, so the forward row is looked for on the lane of the backward row's forward thread.
    """
    result = np.full(len(trace), -1, dtype=np.int64)
    sequence = trace["events"]["sequence"]
    thread = trace["events"]["forward_thread"]
    operators = trace.of(Kind.OPERATOR)
    operators = operators[sequence[operators] >= 0]
    forward = operators[thread[operators] == 0]
    backward = operators[thread[operators] > 0]
    if len(forward) == 0 or len(backward) == 0:
        return result
    _by_number(trace, forward, backward, result)
    _drop_strangers(trace, forward, backward, result)
    return result


# What autograd's generator makes of an operator's name: `AddmmBackward0` of `addmm`; what others call their nodes.
_NODE = re.compile(rf"^(?:{ENGINE_PREFIX})?(?:torch::autograd::)?(?:CppNode<(.*)>|(.*?)Backward\d*)$")


def _drop_strangers(trace: Trace, forward: np.ndarray, backward: np.ndarray, result: np.ndarray) -> None:
    """Undo what shares a number but not a name, where the node's name says what it belongs to."""
    plain = [re.sub(r"[\W_]", "", name.rsplit("::", 1)[-1]).lower() for name in trace.names]
    known = {plain[int(row)] for row in np.unique(trace.name[forward])}
    wanted: dict[int, str] = {}
    for name in np.unique(trace.name[backward]).tolist():
        node = _NODE.match(trace.names[int(name)])
        if node is None:
            continue
        base = re.sub(r"[\W_]", "", (node[1] or node[2]).rsplit("::", 1)[-1]).lower()
        # Names that no operator of the trace resembles are no evidence, except of a custom function.
        if base and (node[1] or any(_kin(base, other) for other in known)):
            wanted[int(name)] = base
    rows = backward[result[backward] >= 0]
    pairs = np.stack((trace.name[rows], trace.name[result[rows]]), axis=1)
    kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
    strange = [node in wanted and not _kin(wanted[node], plain[other]) for node, other in kinds.tolist()]
    result[rows[np.array(strange, dtype=bool)[kind.reshape(-1)]]] = -1


def _kin(one: str, other: str) -> bool:
    return bool(one and other) and (one in other or other in one)


def _by_number(trace: Trace, forward: np.ndarray, backward: np.ndarray, result: np.ndarray) -> None:
    """Write into `result` what the sequence numbers alone say."""
    thread = trace["events"]["forward_thread"]
    lanes = np.unique(trace.lane[forward])
    if len(lanes) == 1:
        _latest_before(trace, forward, backward, result)
        return
    lane_of_thread = _forward_lanes(trace, forward, backward, lanes)
    for number, lane in lane_of_thread.items():
        _latest_before(trace, forward[trace.lane[forward] == lane], backward[thread[backward] == number], result)
    # A thread id may be missing or reused: better the latest row of any lane than none.
    _latest_before(trace, forward, backward[result[backward] < 0], result)


def _latest_before(trace: Trace, forward: np.ndarray, backward: np.ndarray, result: np.ndarray) -> None:
    """Write into `result` the latest-starting forward row of each backward row's number that began before it."""
    if len(forward) == 0 or len(backward) == 0:
        return
    sequence = trace["events"]["sequence"]
    order = np.lexsort((trace.nesting.depth[forward], trace.start[forward], sequence[forward]))
    forward = forward[order]
    ids, first = np.unique(sequence[forward], return_index=True)
    rank = np.searchsorted(ids, sequence[forward])
    span = int(trace.start.max()) + 2
    key = rank * span + trace.start[forward]
    at = np.searchsorted(ids, sequence[backward])
    known = at < len(ids)
    known[known] = ids[at[known]] == sequence[backward][known]
    last = np.searchsorted(key, at * span + trace.start[backward], side="right") - 1
    good = known & (last >= first[np.minimum(at, len(ids) - 1)])
    result[backward[good]] = forward[last[good]]


def _forward_lanes(trace: Trace, forward: np.ndarray, backward: np.ndarray, lanes: np.ndarray) -> dict[int, int]:
    """Lane of each forward thread id. The profiler numbers threads its own way, so the file does not say.

    The profiler's own arrows decide where there are any, then how many of a thread's numbers a lane has, then the order
    in which threads and lanes first appear.
    """
    sequence = trace["events"]["sequence"]
    thread = trace["events"]["forward_thread"]
    first = {int(lane): int(trace.start[forward[trace.lane[forward] == lane]].min()) for lane in lanes}
    by_age = sorted(first, key=first.__getitem__)
    numbers_of = {lane: sequence[forward[trace.lane[forward] == lane]] for lane in by_age}
    origin = _arrow_origins(trace, backward)
    result: dict[int, int] = {}
    for place, number in enumerate(np.unique(thread[backward]).tolist()):
        mine = thread[backward] == number
        wanted = sequence[backward[mine]]

        scores = [
            (
                int(np.count_nonzero(origin[mine] == lane)),
                int(np.count_nonzero(np.isin(wanted, numbers_of[lane]))),
                -abs(age - place),
            )
            for age, lane in enumerate(by_age)
        ]
        result[number] = by_age[scores.index(max(scores))]
    return result


def _arrow_origins(trace: Trace, backward: np.ndarray) -> np.ndarray:
    """Lane on which the `fwdbwd` arrow to each backward row begins, or -1."""
    result = np.full(len(backward), -1, dtype=np.int64)
    flows = trace["flows"]
    chosen = np.isin(flows["category"], np.flatnonzero((trace.text_series == "fwdbwd").to_numpy()))
    begins, ends = np.flatnonzero(chosen & (flows["end"] == 0)), np.flatnonzero(chosen & (flows["end"] == 1))
    if len(begins) == 0 or len(ends) == 0:
        return result
    lane_of_id = dict(zip(flows["id"][begins].tolist(), flows["lane"][begins].tolist(), strict=True))
    arrives = {
        (lane, time): lane_of_id.get(flow, -1)
        for lane, time, flow in zip(
            flows["lane"][ends].tolist(), flows["time"][ends].tolist(), flows["id"][ends].tolist(), strict=True
        )
    }
    places = zip(trace.lane[backward].tolist(), trace.start[backward].tolist(), strict=True)
    return np.array([arrives.get(place, -1) for place in places], dtype=np.int64)
