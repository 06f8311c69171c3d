"""A trace -> its calling-context tree.

Four steps, each on whole columns: rows and their parents (`contexts`), what backward work belongs to (`backward`),
phases (`phases`), and the merging of rows whose whole path is equal (`forest.unify`), after which costs are added up
per node.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import numpy as np

from lanewise._version import __version__
from lanewise.errors import UsageError
from lanewise.measure.kernel_names import COMMUNICATION
from lanewise.trace.model import Trace
from lanewise.trace.reader import opened
from lanewise.trace.schema import Kind
from lanewise.tree.algebra import align
from lanewise.tree.forest import Groups, unify
from lanewise.tree.from_trace.backward import Backward, find_backward
from lanewise.tree.from_trace.contexts import Contexts, find_contexts
from lanewise.tree.from_trace.costs import (
    DeviceWork,
    Selection,
    allocations,
    device_work,
    host_self,
    launch_contexts,
    per_group,
)
from lanewise.tree.from_trace.modules import ModuleNames, name_modules
from lanewise.tree.from_trace.phases import find_phases, is_communication
from lanewise.tree.from_trace.replays import Replays, find_replays
from lanewise.tree.limits import limit_nodes
from lanewise.tree.model import METRICS, NodeKind, Phase, Tree, TreeInfo, identity_keys, identity_parts
from lanewise.tree.names import normalise
from lanewise.tree.rebuild import drop_empty

__all__ = ["MAX_NODES", "build_tree", "whole_tree"]

MAX_NODES = 200_000


def whole_tree(trace: Trace) -> Tree:
    """The calling-context tree of all of a trace: `facts.of(whole_tree)` builds it once."""
    return build_tree(trace)


def build_tree(
    trace: Trace | str | os.PathLike[str],
    *,
    steps: Collection[int] | None = None,
    streams: Collection[str] | None = None,
    max_nodes: int = MAX_NODES,
) -> Tree:
    """The calling-context tree of a trace.

    Args:
        trace: what `read` returned, or the path that it would read.
        steps: numbers of the steps that count, as recorded; all of the trace by default, what lies outside of steps
            included.
        streams: streams whose device work counts, as text; host costs always count.
        max_nodes: above this number the cheapest contexts are merged into `<truncated>`, and counted.

    Raises:
        UsageError: a step or stream that the trace does not have. InputError: a file that cannot be read.
    """
    trace = opened(trace)
    contexts = find_contexts(trace)
    communication = is_communication(trace, contexts)
    backward = find_backward(trace, contexts, communication)
    phase = find_phases(trace, contexts, backward, communication)
    modules = name_modules(trace, contexts)
    work = device_work(trace, contexts)
    selection = _select(trace, steps, streams)
    keys = _Keys(trace, contexts, phase, work, modules)
    groups = unify(
        np.concatenate((contexts.parent, work.context)),
        keys.identity,
        np.concatenate((backward.forward, np.full(len(work.context), -1, dtype=np.int64))),
    )
    info = _info(trace, backward, modules, work, selection, contexts, steps, streams)
    replays = find_replays(trace)
    placed = selection.device & (replays.node >= 0) if replays is not None else np.zeros(len(work.context), dtype=bool)
    here = Selection(selection.event, selection.device & ~placed)
    tree = keys.tree(groups, _metrics(trace, contexts, work, groups, here), info)
    if replays is not None and placed.any():
        tree = align([tree, _replayed(trace, replays, work, placed)]).tree.with_info(**vars(info))
    return limit_nodes(drop_empty(tree), max_nodes)


def _replayed(trace: Trace, replays: Replays, work: DeviceWork, placed: np.ndarray) -> Tree:
    """The contexts that replayed work was captured from, with that work below them."""
    captured, rows = replays.tree, np.flatnonzero(placed)
    device, above = trace.device_work[rows], replays.node[rows]
    table = _Strings()
    texts = table.add(captured.strings)
    names = table.add(normalise([trace.names[int(name)] for name in trace.name[device].tolist()]))
    detail = _directions(trace, trace.device_work, table)[rows]
    strings, rank = table.sorted()
    nothing = np.zeros(len(captured), dtype=np.int64)
    values = {"device": trace.duration[device], "count": np.ones(len(rows), dtype=np.int64)}
    values |= dict.fromkeys(("shortest", "longest"), values["device"])
    values["squares"] = values["device"].astype(np.float64) ** 2
    values |= {"bytes": work.size[rows], "gap": work.gap[rows], "idle": work.idle[rows], "delay": work.delay[rows]}
    metrics = {name: np.concatenate((nothing, values.get(name, np.zeros(len(rows), np.int64)))) for name in METRICS}
    return Tree(
        parent=np.concatenate((captured.parent, above)),
        kind=np.concatenate((captured.kind, _leaf_kinds(trace, device))),
        phase=np.concatenate((captured.phase, _leaf_phases(trace, device, captured.phase[above]))),
        name=np.concatenate((rank[texts[captured.name]], rank[names])),
        detail=np.concatenate((rank[texts[captured.detail]], rank[detail])),
        forward=np.concatenate((captured.forward, np.full(len(rows), -1, dtype=np.int64))),
        strings=strings,
        metrics=metrics,
        info=TreeInfo(source=""),
    )


class _Keys:
    """Identities: rows of a table of (kind, name, detail, phase), ordered by text so that equal programs agree."""

    def __init__(
        self, trace: Trace, contexts: Contexts, phase: np.ndarray, work: DeviceWork, modules: ModuleNames
    ) -> None:
        device = trace.device_work
        count = contexts.events
        event = contexts.event[:count]
        table = _Strings()
        used = np.unique(np.concatenate((trace.name[event], trace.name[device])))
        of_name = np.zeros(len(trace.names), dtype=np.int64)
        of_name[used] = table.add(normalise([trace.names[int(i)] for i in used.tolist()]))
        module_path = of_name.copy()
        module_class = np.zeros(len(trace.names), dtype=np.int64)
        listed = list(modules.path)
        module_path[listed] = table.add([modules.path[i] for i in listed])
        module_class[listed] = table.add([modules.cls[i] for i in listed])
        is_module = contexts.kind[:count] == NodeKind.MODULE
        row_name = np.concatenate(
            (
                np.where(is_module, module_path[trace.name[event]], of_name[trace.name[event]]),
                table.add(contexts.root_name),
            )
        )
        row_detail = np.zeros(len(contexts.event), dtype=np.int64)
        row_detail[:count] = np.where(is_module, module_class[trace.name[event]], 0)
        _add_groups(trace, contexts, table, row_detail)

        kind = np.concatenate((contexts.kind.astype(np.int64), _leaf_kinds(trace, device)))
        name = np.concatenate((row_name, of_name[trace.name[device]]))
        detail = np.concatenate((row_detail, _directions(trace, device, table)))
        phases = np.concatenate((phase.astype(np.int64), _leaf_phases(trace, device, phase[work.context])))
        self.strings, rank = table.sorted()
        key = identity_keys(kind, phases, rank[name], rank[detail])
        self._distinct, self.identity = np.unique(key, return_inverse=True)

    def tree(self, groups: Groups, metrics: dict[str, np.ndarray], info: TreeInfo) -> Tree:
        """The tree of merged rows."""
        kind, phase, name, detail = identity_parts(self._distinct[groups.identity])
        return Tree(
            parent=groups.parent,
            kind=kind,
            phase=phase,
            name=name,
            detail=detail,
            forward=groups.forward,
            strings=self.strings,
            metrics=metrics,
            info=info,
        )


class _Strings:
    """Texts by number."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {"": 0}

    def add(self, texts: Any) -> np.ndarray:
        """Row of each text."""
        rows = self._rows
        return np.array([rows.setdefault(text, len(rows)) for text in texts], dtype=np.int64)

    def sorted(self) -> tuple[list[str], np.ndarray]:
        """The texts in order, "" first, and the place of each row there."""
        texts = list(self._rows)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        rank = np.empty(len(texts), dtype=np.int64)
        rank[order] = np.arange(len(texts))
        return [texts[row] for row in order], rank


def _add_groups(trace: Trace, contexts: Contexts, table: _Strings, detail: np.ndarray) -> None:
    """The process group of each collective becomes its detail."""
    collectives = trace["collective_args"]
    rows = contexts.row[collectives["event"].astype(np.int64)] if len(collectives["event"]) else np.empty(0, np.int64)
    known = rows >= 0
    if not known.any():
        return
    texts = [
        trace.texts[int(d)] or trace.texts[int(g)]
        for d, g in zip(collectives["description_text"][known], collectives["group_text"][known], strict=True)
    ]
    detail[rows[known]] = table.add(texts)


def _leaf_kinds(trace: Trace, device: np.ndarray) -> np.ndarray:
    kinds = np.full(len(device), NodeKind.KERNEL, dtype=np.int64)
    kinds[trace.kind[device] == Kind.MEMCPY] = NodeKind.COPY
    kinds[trace.kind[device] == Kind.MEMSET] = NodeKind.SET
    return kinds


def _leaf_phases(trace: Trace, device: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Phase of the context, except that a communication kernel is communication wherever it was launched."""
    named = np.zeros(len(trace.names), dtype=bool)
    kernels = device[trace.kind[device] == Kind.KERNEL]
    for name in np.unique(trace.name[kernels]).tolist():
        named[name] = bool(COMMUNICATION.search(trace.names[int(name)]))
    communication = named[trace.name[device]] & (trace.kind[device] == Kind.KERNEL)
    return np.where(communication, Phase.COMMUNICATION, phase).astype(np.int64)


def _directions(trace: Trace, device: np.ndarray, table: _Strings) -> np.ndarray:
    detail = np.zeros(len(device), dtype=np.int64)
    copies = trace["copy_args"]
    is_copy = trace.kind[copies["event"]] == Kind.MEMCPY if len(copies["event"]) else np.empty(0, dtype=bool)
    detail[np.searchsorted(device, copies["event"][is_copy])] = table.add(copies["direction"][is_copy].tolist())
    return detail


def _select(trace: Trace, steps: Collection[int] | None, streams: Collection[str] | None) -> Selection:
    event = np.ones(len(trace), dtype=bool)
    if steps is not None:
        known = trace.steps.number.tolist() if trace.steps.recorded else []
        missing = sorted(set(steps) - set(known))
        if missing:
            listed = ", ".join(map(str, known)) or "none"
            raise UsageError(f"the trace has no step {missing[0]}; it has: {listed}")
        rows = np.flatnonzero(np.isin(trace.steps.number, list(steps)))
        event = np.isin(trace.steps.of_event, rows)
    device = event[trace.device_work].copy()
    if streams is not None:
        lanes = trace["lanes"]
        on_device = lanes["side"] == "device"
        known_streams = sorted(set(lanes["thread"][on_device].tolist()))
        unknown = sorted(set(streams) - set(known_streams))
        if unknown:
            raise UsageError(f"the trace has no stream {unknown[0]}; it has: {', '.join(known_streams) or 'none'}")
        chosen = on_device & np.isin(lanes["thread"], list(streams))
        device &= chosen[trace.lane[trace.device_work]]
    return Selection(event, device)


def _metrics(
    trace: Trace, contexts: Contexts, work: DeviceWork, groups: Groups, selection: Selection
) -> dict[str, np.ndarray]:
    size = len(groups.parent)
    rows = len(contexts.event)
    count = contexts.events
    of_row, of_leaf = groups.of[:rows], groups.of[rows:][selection.device]
    device = trace.device_work[selection.device]
    duration = trace.duration[device]
    entered = np.zeros(rows, dtype=bool)
    entered[:count] = selection.event[contexts.event[:count]]
    host = np.where(entered, host_self(trace, contexts), 0)
    calls, of_call = launch_contexts(trace, contexts)
    counted = selection.event[calls]
    place, amount, step = allocations(trace, contexts)
    if not selection.event.all():
        kept = np.isin(step, np.unique(trace.steps.of_event[selection.event]))
        place, amount = place[kept], amount[kept]
    shortest = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
    longest = np.zeros(size, dtype=np.int64)
    np.minimum.at(shortest, of_leaf, duration)
    np.maximum.at(longest, of_leaf, duration)
    number = per_group(of_leaf, None, size)
    return {
        "device": per_group(of_leaf, duration, size),
        "count": number,
        "shortest": np.where(number > 0, shortest, 0),
        "longest": longest,
        "squares": np.bincount(of_leaf, weights=duration.astype(np.float64) ** 2, minlength=size),
        "bytes": per_group(of_leaf, work.size[selection.device], size),
        "gap": per_group(of_leaf, work.gap[selection.device], size),
        "idle": per_group(of_leaf, work.idle[selection.device], size),
        "delay": per_group(of_leaf, work.delay[selection.device], size),
        "calls": per_group(of_row[entered], None, size),
        "host": per_group(of_row, host, size),
        "launches": per_group(of_row[of_call[counted]], None, size),
        "allocated": per_group(of_row[place], amount, size),
        "allocations": per_group(of_row[place], None, size),
    }


def _info(
    trace: Trace,
    backward: Backward,
    modules: ModuleNames,
    work: DeviceWork,
    selection: Selection,
    contexts: Contexts,
    steps: Collection[int] | None,
    streams: Collection[str] | None,
) -> TreeInfo:
    numbers = trace.steps.number.tolist() if trace.steps.recorded else []
    filters: dict[str, str] = {}
    if steps is not None:
        filters["step"] = ", ".join(map(str, sorted(steps)))
    if streams is not None:
        filters["stream"] = ", ".join(sorted(streams))
    lost = work.context >= contexts.head
    return TreeInfo(
        source=trace.reading.source.replace("\\", "/").rpartition("/")[2],
        producer=f"lanewise {__version__}",
        steps=tuple(n for n in numbers if steps is None or n in steps),
        device_total=int(trace.duration[trace.device_work[selection.device]].sum()),
        unlinked=int(np.count_nonzero(lost & selection.device)),
        backward=backward.operators,
        linked=backward.linked,
        accumulated=backward.accumulated,
        modules=modules.source,
        frames=bool((contexts.kind == NodeKind.FRAME).any()),
        devices=_devices(trace),
        versions=_versions(trace),
        filters=filters,
    )


def _devices(trace: Trace) -> tuple[str, ...]:
    listed = trace.metadata.get("deviceProperties")
    names = [entry.get("name") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return tuple(dict.fromkeys(str(name) for name in names if name))


def _versions(trace: Trace) -> dict[str, str]:
    keys = ("cuda_driver_version", "cuda_runtime_version", "cupti_version", "hip_driver_version", "hip_runtime_version")
    return {key: str(trace.metadata[key]) for key in keys if key in trace.metadata}
