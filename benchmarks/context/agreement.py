"""The tree of a watch beside the tree of a full trace of the same steps: contexts, and how often what ran below them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.context.programs import PROGRAMS

import lanewise
from lanewise.capture.profiling.profiler import Flags, Session
from lanewise.tree.model import KIND_NAMES, LEAVES, PHASES, Tree
from lanewise.tree.views import top_down

__all__ = ["agreement"]

Row = tuple[int, int]
"""How often, and device time in ns."""


def agreement(program: str, device: str, steps: int) -> dict[str, Any]:
    """Watched, then traced: a trace keeps the device for itself. Device times of one after the other say little."""
    step = PROGRAMS[program](device)

    def work() -> None:
        for _ in range(steps):
            step()

    work()
    first = _watched(work)
    traced = _traced(work, device)
    return {
        "steps": steps,
        "contexts": {"watch": len(first), "trace": len(traced)},
        "operators": _same_contexts(first, traced),
        "kernels": _compared(_kernels(first), _kernels(traced)),
        "placed": _compared(_placed(first), _placed(traced)),
        "losses": first.info.watched.losses if first.info.watched else {},
    }


def _watched(work: Callable[[], None]) -> Tree:
    with lanewise.watch(measure=False, way="native") as watcher:
        work()
    return top_down(watcher.tree)


def _traced(work: Callable[[], None], device: str) -> Tree:
    session = Session(Flags(stacks=True, shapes=False), device)
    session.prepare()
    session.start()
    work()
    session.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        session.export(str(path))
        return top_down(lanewise.build_tree(lanewise.read(str(path), cache=False)))


def _paths(tree: Tree) -> dict[tuple[str, ...], int]:
    """Every context below `work`, without modules: a trace alone does not know their paths in the network."""
    found: dict[tuple[str, ...], int] = {}
    for node in range(len(tree)):
        path: list[str] = []
        at = node
        while at >= 0 and not tree.label(at).endswith(": work"):
            if KIND_NAMES[tree.kind[at]] != "module":
                path.append(f"{KIND_NAMES[tree.kind[at]]} {PHASES[tree.phase[at]]} {tree.label(at)}")
            at = int(tree.parent[at])
        found.setdefault(tuple(reversed(path)), node)
    return found


def _same_contexts(ours: Tree, theirs: Tree) -> dict[str, Any]:
    both = [{path for path in _paths(tree) if path and path[-1].startswith("operator ")} for tree in (ours, theirs)]
    only = [sorted(both[0] - both[1]), sorted(both[1] - both[0])]
    return {
        "same": len(both[0] & both[1]),
        "only_watch": len(only[0]),
        "only_trace": len(only[1]),
        "examples": [[" > ".join(path[-3:]) for path in side[:3]] for side in only],
    }


def _kernels(tree: Tree) -> dict[str, Row]:
    """Device work by name."""
    found: dict[str, Row] = {}
    for node in range(len(tree)):
        if tree.kind[node] in LEAVES:
            count, time = found.get(tree.label(node), (0, 0))
            found[tree.label(node)] = (
                count + int(tree.metrics["count"][node]),
                time + int(tree.metrics["device"][node]),
            )
    return found


def _placed(tree: Tree) -> dict[str, Row]:
    """Device work by name, with the operators that it is below and their phase."""
    found: dict[str, Row] = {}
    for node in range(len(tree)):
        if tree.kind[node] not in LEAVES:
            continue
        path = [tree.label(node), PHASES[tree.phase[node]]]
        at = int(tree.parent[node])
        while at >= 0:
            if KIND_NAMES[tree.kind[at]] == "operator":
                path.append(tree.label(at))
            at = int(tree.parent[at])
        key = " < ".join(path)
        count, time = found.get(key, (0, 0))
        found[key] = (count + int(tree.metrics["count"][node]), time + int(tree.metrics["device"][node]))
    return found


def _compared(ours: dict[str, Row], theirs: dict[str, Row]) -> dict[str, Any]:
    """Names and counts on either side."""
    return {
        "names": [len(ours), len(theirs), len(ours.keys() & theirs.keys())],
        "counts": [sum(count for count, _ in side.values()) for side in (ours, theirs)],
        "different_counts": {
            name: [ours.get(name, (0, 0))[0], theirs.get(name, (0, 0))[0]]
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name, (0, 0))[0] != theirs.get(name, (0, 0))[0]
        },
    }
