"""Several ranks of one job: the same collective on each of them, who came last and how long the others waited.

The k-th collective of a group with equal name, type and size is the same one on all ranks; work from before the
recording is left out. Its transfer takes the shortest of the ranks' durations,
the rest of a rank's duration is waiting. All of this needs no common clock; where the clocks can be compared, the
ends of matched collectives show whether they agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.measure.signatures import DTYPE_BYTES
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Collectives", "Ranks", "align", "collectives", "message_bytes", "rank_of", "world_in"]

# Names of c10 types as collective arguments spell them.
_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "long": 8,
    "int": 4,
    "short": 2,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collective kernels of one rank, by start.

    Attributes:
        event: kernel. call: the call that launched it, -1 if unknown. step: row of the step.
        key: (group, collective, type, elements) of each. bytes: message size, -1 if unknown.
    """

    event: np.ndarray
    call: np.ndarray
    step: np.ndarray
    key: list[tuple[str, str, str, int]]
    bytes: np.ndarray


@dataclass(frozen=True, eq=False)
class Ranks:
    """Matched collectives of several ranks; matrices have a row per collective and a column per rank.

    Attributes: rank: number of each rank as the files give it. event: kernel of each rank. duration: ns. shortest:
        duration of the transfer, ns, per collective. waiting: duration less the shortest, ns. last: column of the
        rank that came last, per collective. steady: whether the collective lies in a steady step of every rank.
        unmatched: collectives of some ranks that have no partner. clock_spread: median distance of the ends from each
        other after removing a constant offset per rank, ns; -1 where the files share no clock. Above 1 ms the match
        is doubtful.
    """

    rank: tuple[int, ...]
    event: np.ndarray
    duration: np.ndarray
    shortest: np.ndarray
    waiting: np.ndarray
    last: np.ndarray
    steady: np.ndarray
    unmatched: int
    clock_spread: float


def world_in(metadata: Mapping[str, Any]) -> int:
    """Ranks of the job that a trace is of, by what it says besides its events; 0 if it does not say."""
    info = metadata.get("distributedInfo")
    world = info.get("world_size") if isinstance(info, Mapping) else None
    if not isinstance(world, int) or isinstance(world, bool):
        recorded = from_metadata(metadata)
        world = recorded.world_size if recorded is not None else None
    return world if world is not None and world > 0 else 0


def rank_of(facts: Core) -> int:
    """Rank of a trace by its metadata or its collectives; -1 if neither tells."""
    info = facts.trace.metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if isinstance(rank, int) and not isinstance(rank, bool):
        return rank
    by_recorder = from_metadata(facts.trace.metadata)
    if by_recorder is not None and by_recorder.rank is not None:
        return by_recorder.rank
    args = facts.trace["collective_args"]
    names = [str(text) for text in facts.trace.texts]
    # Of a transfer between two ranks this is the other one.
    both = np.array([not _POINT_TO_POINT.search(names[row]) for row in args["collective_text"].tolist()], dtype=bool)
    known = args["rank"][both & (args["rank"] >= 0)] if len(both) else both
    return int(known[0]) if len(known) else -1


def collectives(facts: Core) -> Collectives:
    """Collectives of one rank: those that carry their arguments; of a build that records none, communication kernels by
    name, with the sizes that their operators were called with."""
    trace = facts.trace
    args = trace["collective_args"]
    rows = np.flatnonzero(trace.kind[args["event"]] == Kind.KERNEL)
    if len(rows) == 0:
        return _by_name(facts)
    rows = rows[np.argsort(trace.start[args["event"][rows]], kind="stable")]
    event = args["event"][rows].astype(np.int64)
    texts = [str(text) for text in trace.texts]
    elements = np.maximum(args["in_elements"][rows], args["out_elements"][rows])
    key = [
        (texts[group], texts[name], texts[dtype], int(size))
        for group, name, dtype, size in zip(
            args["group_text"][rows].tolist(),
            args["collective_text"][rows].tolist(),
            args["dtype_text"][rows].tolist(),
            args["in_elements"][rows].tolist(),
            strict=True,
        )
    ]
    return _collectives(facts, event, key, elements)


def _collectives(
    facts: Core, event: np.ndarray, key: list[tuple[str, str, str, int]], elements: np.ndarray
) -> Collectives:
    trace = facts.trace
    each = zip(key, elements.tolist(), strict=True)
    bytes_ = np.array([message_bytes(dtype, number) for (_, _, dtype, _), number in each], dtype=np.int64)
    call = trace.links.launch_of(event)
    return Collectives(event, call, trace.steps.of_event[event].astype(np.int64), key, bytes_)


def message_bytes(dtype: str, elements: int) -> int:
    """Bytes of a message; -1 if its type or number of elements is unknown."""
    size = _bytes_of(dtype)
    return size * elements if size > 0 and elements >= 0 else -1


def _bytes_of(dtype: str) -> int:
    return _BYTES.get(dtype.lower().removeprefix("c10::"), 0) or DTYPE_BYTES.get(dtype, 0)


# Between two ranks, and so not the same on all of them.
_POINT_TO_POINT = re.compile(r"\b(?:i?send|i?recv)\b", re.IGNORECASE)
_KERNEL = re.compile(r"(?:nccl|rccl)\w*?Kernel_([A-Za-z]+)")


def _by_name(facts: Core) -> Collectives:
    trace = facts.trace
    rows = np.flatnonzero(facts.is_family("communication") & (trace.links.launch >= 0))
    event = trace.device_work[rows]
    order = np.argsort(trace.start[event], kind="stable")
    kept: list[int] = []
    key: list[tuple[str, str, str, int]] = []
    for row in rows[order].tolist():
        kernel = int(trace.device_work[row])
        kernel_name = trace.name_of(kernel)
        of_kernel = _KERNEL.match(kernel_name)
        name = of_kernel[1] if of_kernel else kernel_name
        dtype, elements = "", -1
        operator = int(trace.links.operator[row])
        while operator >= 0 and facts.collective_names[trace.name[operator]]:
            signature = facts.signatures.of(operator)
            tensors = signature.tensors if signature else ()
            if _POINT_TO_POINT.search(trace.name_of(operator)):
                break
            if tensors and elements < 0:
                dtype, elements = tensors[0].dtype, sum(tensor.numel for tensor in tensors)
            operator = int(facts.host.parent[operator])
        else:
            kept.append(kernel)
            key.append(("", name, dtype, elements))
    return _collectives(facts, np.array(kept, np.int64), key, np.array([size for *_, size in key], np.int64))


def align(ranks: Sequence[Core]) -> Ranks | None:
    """Match the collectives of the given ranks; None with fewer than two ranks or nothing in common."""
    if len(ranks) < 2:
        return None
    found = [collectives(facts) for facts in ranks]
    numbered = [_numbered(one) for one in found]
    common = set(numbered[0])
    for one in numbered[1:]:
        common &= one.keys()
    if not common:
        return None
    start = ranks[0].trace.start
    order = sorted(common, key=lambda name: int(start[found[0].event[numbered[0][name]]]))
    row = np.array([[one[name] for one in numbered] for name in order], dtype=np.int64)
    event = np.stack([one.event[row[:, column]] for column, one in enumerate(found)], axis=1)
    duration = np.stack([facts.trace.duration[event[:, column]] for column, facts in enumerate(ranks)], axis=1)
    steady = np.ones(len(order), dtype=bool)
    for column, (facts, one) in enumerate(zip(ranks, found, strict=True)):
        steady &= facts.is_steady(one.step[row[:, column]])
    shortest = duration.min(axis=1)
    return Ranks(
        rank=tuple(rank_of(facts) for facts in ranks),
        event=event,
        duration=duration,
        shortest=shortest,
        waiting=duration - shortest[:, None],
        last=duration.argmin(axis=1),
        steady=steady,
        unmatched=sum(len(one.event) for one in found) - len(order) * len(ranks),
        clock_spread=_clock_spread(ranks, event),
    )


def _numbered(one: Collectives) -> dict[tuple[tuple[str, str, str, int], int], int]:
    """Row of the k-th collective of each key."""
    seen: dict[tuple[str, str, str, int], int] = {}
    result: dict[tuple[tuple[str, str, str, int], int], int] = {}
    for row, key in enumerate(one.key):
        number = seen.get(key, 0)
        seen[key] = number + 1
        result[key, number] = row
    return result


def _clock_spread(ranks: Sequence[Core], event: np.ndarray) -> float:
    if any(facts.trace.base_ns == 0 for facts in ranks):
        return -1.0
    base = min(facts.trace.base_ns for facts in ranks)
    ends = np.stack(
        [facts.trace.end[event[:, column]] + (facts.trace.base_ns - base) for column, facts in enumerate(ranks)], axis=1
    )
    apart = ends - ends[:, :1]
    return float(np.median(np.abs(apart - np.median(apart, axis=0))))
